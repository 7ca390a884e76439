#include "dispatch/cache.hpp"

#include <algorithm>
#include <fstream>
#include <string>

#ifdef __linux__
#include <unistd.h>
#endif

namespace lmhead {
namespace {

constexpr int64_t kUnknown = int64_t(32) << 20;

// "32768K" of /sys/devices/system/cpu/cpu0/cache/index3/size.
int64_t listed() {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    int64_t size = 0;
    char unit = 0;
    if (!(file >> size)) continue;
    file >> unit;
    largest = std::max(largest, size * (unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1));
  }
  return largest;
}

int64_t detect() {
  int64_t largest = listed();
#if defined(_SC_LEVEL3_CACHE_SIZE) && defined(_SC_LEVEL2_CACHE_SIZE)
  if (largest <= 0) largest = std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), sysconf(_SC_LEVEL2_CACHE_SIZE));
#endif
  return largest > 0 ? largest : kUnknown;
}

}  // namespace

int64_t last_level_cache_bytes() {
  static const int64_t bytes = detect();
  return bytes;
}

}  // namespace lmhead
