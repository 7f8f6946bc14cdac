#!/usr/bin/env python3
"""Reads a TensorBoard event file, with nothing but the formats' definitions, and prints it as JSON.

The checksum is worked out bit by bit. A damaged record ends the program with an error.
"""

import json
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def check(data, stored):
    crc = crc32c(data)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    assert (rotated + 0xA282EAD8) & 0xFFFFFFFF == stored, "checksum"


def records(data):
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        check(data[:8], struct.unpack("<I", data[8:12])[0])
        body = data[12:12 + length]
        check(body, struct.unpack("<I", data[12 + length:16 + length])[0])
        yield body
        data = data[16 + length:]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = struct.unpack("<d", data[at:at + 8])[0], at + 8
        elif key & 7 == 5:
            value, at = struct.unpack("<f", data[at:at + 4])[0], at + 4
        else:
            assert key & 7 == 2, "wire type"
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            assert len(value) == size, "cut"
        yield key >> 3, value


def event(body):
    result = {}
    for number, value in fields(body):
        if number == 1:
            result["wall_time"] = value
        elif number == 2:
            result["step"] = value
        elif number == 3:
            result["file_version"] = value.decode()
        elif number == 7:
            result["session"] = dict(fields(value))[1]
        else:
            assert number == 5, "field of an event"
            for _, scalar in fields(value):
                parts = dict(fields(scalar))
                result[parts[1].decode()] = parts[2]
    return result


with open(sys.argv[1], "rb") as file:
    json.dump([event(body) for body in records(file.read())], sys.stdout)
