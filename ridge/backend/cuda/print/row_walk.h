// How the threads of a block go over the elements of a row, as text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridge/backend/cuda/print/kernel_text.h"

namespace ridge::cuda {

enum class Walk : uint8_t {
  kInOrder,    ///< Each in its place of the tree of sums, by packs of four that are aligned.
  kUnaligned,  ///< The same by packs that are not.
  kSpread,     ///< All of them side by side, by packs that are aligned wherever the row begins.
  kHeld,       ///< In its place of the tree, by packs of two that a warp holds in registers.
};

/// Elements of a row that a warp takes at a time, where it holds the row: two a thread.
inline constexpr int64_t kHeldStep = 64;

/// Elements of a pack.
constexpr int width_of(Walk walk) { return walk == Walk::kHeld ? 2 : 4; }

/// The pack at column c of `row`, and the statement that stores it.
std::string load_text(Walk walk, std::string_view row);
std::string store_text(Walk walk, std::string_view row, std::string_view pack);

/// The place at `shared` bytes where threads keep what they read of a row of an input; and the call
/// by which a block keeps a whole row of `columns` there.
std::string kept_text(std::string_view type, size_t input, int64_t shared);
std::string keep_row_text(std::string_view row, size_t input, int64_t shared, int64_t columns);

/// Adds the load of pack p<input> of `row`, of which the first `kept` elements of `columns` lie in
/// shared memory at kept<input>. The first pass to read a row puts them there; a thread finds there
/// what it has put there itself.
void add_kept_load(std::vector<std::string>& loads,
                   Walk walk,
                   size_t input,
                   std::string_view row,
                   bool is_first,
                   int64_t columns,
                   int64_t kept);
/// The expressions for column c + k of a one-hot whose row is marked at `place`, and of a mask of
/// columns whose operand is `value`.
std::string marked_text(const Node& one_hot, std::string_view place);
std::string masked_text(const Node& mask, std::string_view value);

/// Whether a block can hold so many rows of the body in registers, a warp each. Nothing waits for
/// memory then but what reads the row, and that for all of it at once.
inline constexpr int64_t kHeldRows = 4;
bool can_be_held(const FusedBody& body, Functions functions);

/// `begin` and `end` of the columns of a thread's group: a piece of a long row, else all of one for
/// which `is_there` holds (empty: always).
void print_bounds(Lines& lines, std::string_view type, int64_t columns, std::string_view is_there);

/// Opens the loop over the packs of a thread, at column c: number j where the row is held, which
/// has so many columns.
void open_packs(
    Lines& lines, Walk walk, std::string_view index_type, int unrolled, int64_t columns);

/// The loops that call `passN(packs, c)`, N = level: for a thread's place in the tree, from `begin`
/// to `end`, and for all threads of the block, where the first aligned element is at `head`.
void print_unaligned_loop(Lines& lines, int level, int unrolled);
void print_spread_loop(Lines& lines, int level, int unrolled, int64_t columns, int64_t threads);

}  // namespace ridge::cuda
