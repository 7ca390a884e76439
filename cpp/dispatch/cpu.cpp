#include "dispatch/cpu.hpp"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lmhead {
namespace {

#if defined(__x86_64__)

struct Registers { uint32_t a = 0, b = 0, c = 0, d = 0; };

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r;
  if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d)) return {};
  return r;
}

constexpr bool bit(uint32_t word, int n) { return (word >> n) & 1u; }

// The extended state the operating system saves: bits 1, 2 are xmm and ymm; 5, 6, 7 are opmask and zmm.
uint64_t saved_state() {
  if (!bit(cpuid(1, 0).c, 27)) return 0;  // OSXSAVE
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

CpuFeatures detect() {
  const Registers one = cpuid(1, 0), seven = cpuid(7, 0), seven_one = cpuid(7, 1), extended = cpuid(0x80000001u, 0);
  const uint64_t state = saved_state();
  const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6;
  CpuFeatures f;
  const bool fma = bit(one.c, 12), movbe = bit(one.c, 22), avx = bit(one.c, 28), f16c = bit(one.c, 29);
  const bool bmi1 = bit(seven.b, 3), avx2 = bit(seven.b, 5), bmi2 = bit(seven.b, 8), lzcnt = bit(extended.c, 5);
  f.x86_64_v3 = ymm && fma && movbe && avx && f16c && bmi1 && avx2 && bmi2 && lzcnt;
  const bool avx512 = bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 28) && bit(seven.b, 30) && bit(seven.b, 31);
  f.x86_64_v4 = f.x86_64_v3 && zmm && avx512;
  f.avx512_bf16 = f.x86_64_v4 && bit(seven_one.a, 5);
  f.avx512_vnni = f.x86_64_v4 && bit(seven.c, 11);
  return f;
}

#else

CpuFeatures detect() { return {}; }

#endif

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::vector<std::pair<std::string, bool>> cpu_feature_list() {
  const CpuFeatures& f = cpu_features();
  return {{"x86-64-v3", f.x86_64_v3}, {"x86-64-v4", f.x86_64_v4}, {"avx512_bf16", f.avx512_bf16}, {"avx512_vnni", f.avx512_vnni}};
}

std::string cpu_brand() {
#if defined(__x86_64__)
  char text[49] = {};
  for (uint32_t k = 0; k < 3; ++k) {
    const Registers r = cpuid(0x80000002u + k, 0);
    const uint32_t words[4] = {r.a, r.b, r.c, r.d};
    std::memcpy(text + 16 * k, words, 16);
  }
  const char* start = text;
  while (*start == ' ') ++start;
  return start;
#else
  return "";
#endif
}

}  // namespace lmhead
