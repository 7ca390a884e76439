// Random words by counter: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3; 2011), and which
// counter belongs to which token. A word depends on (seed, position, id) alone, so a draw depends on no neighbour, batch or thread.
// It knows bits; it refuses to know distributions.
//
// key = the seed's (low, high) words; counter = (group, stream, position low, position high). Of 64 consecutive ids, 16 lanes x 4
// words: id v is word (v % 64) / 16 of group (v / 64) * 16 + v % 16, so that a kernel has 16 neighbours side by side. Groups are
// unique below 2^34 ids.
#pragma once

#include <cstdint>

#include "kernels/table.hpp"

namespace lmhead {

enum class Stream : uint32_t {
  high = 0,       // high halves of the 64 bits of an id
  low = 1,        // low halves
  row = 2,        // seeds of the rows of a batch that were given one
  rejection = 3,  // uniform numbers that no id owns
};

struct RandomWords {
  uint32_t word[4];
};

inline RandomWords philox(RandomWords counter, uint32_t key_low, uint32_t key_high) {
  uint32_t* c = counter.word;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p = uint64_t{kPhiloxMultiplier0} * c[0], q = uint64_t{kPhiloxMultiplier1} * c[2];
    c[0] = static_cast<uint32_t>(q >> 32) ^ c[1] ^ key_low;
    c[2] = static_cast<uint32_t>(p >> 32) ^ c[3] ^ key_high;
    c[1] = static_cast<uint32_t>(q);
    c[3] = static_cast<uint32_t>(p);
    key_low += kPhiloxWeyl0;
    key_high += kPhiloxWeyl1;
  }
  return counter;
}

constexpr uint32_t low_word(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t high_word(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

// The words that one draw has for its ids.
class Noise {
 public:
  Noise(uint64_t seed, uint64_t position) : seed_(seed), position_(position) {}

  RandomWords words(uint32_t group, Stream stream) const {
    return philox({{group, static_cast<uint32_t>(stream), low_word(position_), high_word(position_)}}, low_word(seed_), high_word(seed_));
  }
  uint32_t word_of(int64_t id, Stream stream = Stream::high) const {
    return words(static_cast<uint32_t>(id / 64 * 16 + id % 16), stream).word[id % 64 / 16];
  }
  uint64_t bits_of(int64_t id) const { return uint64_t{word_of(id)} << 32 | word_of(id, Stream::low); }
  // The words of stream `high` from a block's first id on, as kernels make them.
  NoiseBlock block(int64_t first_id) const {
    return {static_cast<uint32_t>(first_id / 4), {low_word(position_), high_word(position_)}, {low_word(seed_), high_word(seed_)}};
  }

 private:
  uint64_t seed_, position_;
};

// The seed of row r of a batch that was given one seed; row 0 keeps it.
inline uint64_t seed_of_row(uint64_t seed, int64_t row) {
  if (row == 0) return seed;
  const auto r = static_cast<uint64_t>(row);
  const RandomWords words = philox({{low_word(r), static_cast<uint32_t>(Stream::row), high_word(r), 0}}, low_word(seed), high_word(seed));
  return words.word[0] | uint64_t{words.word[1]} << 32;
}

}  // namespace lmhead
