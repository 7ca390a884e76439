// Which ids of a block can still win a race of exponential noise: the filter before exact scores (consumers/race.hpp has the proof).
// Noise is Philox4x32-10 by counter, 16 groups of 4 words for 64 ids (core/random.hpp has the layout).
// It knows words and comparisons; it refuses to know who wins.
#pragma once

#include "kernels/table.hpp"
#include "simd/lanes.hpp"

namespace lmhead {
namespace {

// The words of 64 ids: word w of group first_group + lane is that of id 16 w + lane.
inline void random_words(uint32_t first_group, const NoiseBlock& noise, uint32_t* words) {
  constexpr int lanes = kWordLanes, chains = kWordChains;
  for (int lane = 0; lane < 16; lane += chains * lanes) {
    VW c0[chains], c1[chains], c2[chains], c3[chains];
    LMHEAD_UNROLL
    for (int c = 0; c < chains; ++c) {
      c0[c] = count_words(first_group + static_cast<uint32_t>(lane + c * lanes));
      c1[c] = broadcast_word(0);
      c2[c] = broadcast_word(noise.position[0]);
      c3[c] = broadcast_word(noise.position[1]);
    }
    uint32_t key_low = noise.key[0], key_high = noise.key[1];
    for (int round = 0; round < 10; ++round) {
      LMHEAD_UNROLL
      for (int c = 0; c < chains; ++c) {
        const VW p = multiply_words(c0[c], kPhiloxMultiplier0), q = multiply_words(c2[c], kPhiloxMultiplier1);
        c0[c] = xor_words(high_words(q), c1[c], broadcast_word(key_low));
        c2[c] = xor_words(high_words(p), c3[c], broadcast_word(key_high));
        c1[c] = q;
        c3[c] = p;
      }
      key_low += kPhiloxWeyl0;
      key_high += kPhiloxWeyl1;
    }
    LMHEAD_UNROLL
    for (int c = 0; c < chains; ++c) {
      const int at = lane + c * lanes;
      store_words(words + at, c0[c]);
      store_words(words + 16 + at, c1[c]);
      store_words(words + 32 + at, c2[c]);
      store_words(words + 48 + at, c3[c]);
    }
  }
}

template <class T>
int64_t race(const T* exps, int64_t n, const NoiseBlock& noise, T bar, uint32_t* words, uint16_t* places) {
  constexpr int lanes = kLanes<T>;
  const Vector<T> v_bar = broadcast(bar);
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += 64) {
    random_words(noise.first_group + static_cast<uint32_t>(first / 4), noise, words + first);
    for (int64_t i = first; i < first + 64 && i < n; i += lanes) {
      const Vector<T> exp = load_first(exps + i, n - i, T(-1));
      uint32_t bits = mask_bits(not_less(exp, mul(load_halves(words + i, T()), v_bar)));
      for (; bits; bits &= bits - 1) places[count++] = static_cast<uint16_t>(i + __builtin_ctz(bits));
    }
  }
  return count;
}

}  // namespace
}  // namespace lmhead
