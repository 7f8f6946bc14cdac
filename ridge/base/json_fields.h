// Structs that travel as JSON list their fields once, in the order in which they are written, for
// writer and reader alike:
//
//   static void fields(auto& self, auto&& visit) {
//     visit("seconds", self.seconds, 0.0, 1e12);
//     visit.known("free_bytes", self.free_bytes);
//   }
//
// A visitor is called with a key, a member, and what the reader needs to know of it, such as the
// bounds of a number. Members of the visitor are for fields that are written in a way of their own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ridge/base/json_writer.h"

namespace ridge {

/// Takes every call of a list of fields and does nothing.
struct IgnoreFields {
  void operator()(const auto&...) const {}
  void known(const auto&...) const {}
  void added(const auto&...) const {}
  void count(const auto&...) const {}
  void either(const auto&...) const {}
};

template <typename T>
concept HasFields = requires(T& self) { T::fields(self, IgnoreFields{}); };

/// Writes the fields that it visits into an open object. Enums are written by their name_of(), an
/// optional without a value as null.
class FieldWriter {
 public:
  explicit FieldWriter(JsonWriter& json) : json_(json) {}

  void operator()(std::string_view key, const auto& member, const auto&...) const {
    json_.key(key);
    write(member);
  }
  /// An optional that is left out where it has no value.
  template <typename T>
  void known(std::string_view key, const std::optional<T>& member, const auto&... more) const {
    if (member) (*this)(key, *member, more...);
  }
  /// A field that files of older versions lack.
  void added(std::string_view key, const auto& member, const auto&... more) const {
    (*this)(key, member, more...);
  }
  /// A number that follows from other fields.
  void count(std::string_view key, int64_t number) const { json_.field(key, number); }
  /// A flag that is one of two words.
  void either(std::string_view key, bool flag, const char* yes, const char* no) const {
    json_.field(key, flag ? yes : no);
  }

  /// One value, without a key.
  template <typename T>
  void write(const T& value) const {
    if constexpr (HasFields<T>) {
      json_.begin_object();
      T::fields(value, *this);
      json_.end_object();
    } else if constexpr (std::is_enum_v<T>) {
      json_.value(name_of(value));
    } else {
      json_.value(value);
    }
  }
  template <typename T>
  void write(const std::optional<T>& value) const {
    if (value)
      write(*value);
    else
      json_.value(nullptr);
  }
  template <typename T>
  void write(const std::vector<T>& list) const {
    write_list(list);
  }
  template <typename T, size_t kSize>
  void write(const std::array<T, kSize>& list) const {
    write_list(list);
  }

 private:
  void write_list(const auto& list) const {
    json_.begin_array();
    for (const auto& item : list) write(item);
    json_.end_array();
  }

  JsonWriter& json_;
};

}  // namespace ridge
