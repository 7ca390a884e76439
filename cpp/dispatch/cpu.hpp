// What the CPU and the operating system allow.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lmhead {

struct CpuFeatures {
  bool x86_64_v3 = false;    // AVX2, FMA, F16C, BMI and the OS saves ymm
  bool x86_64_v4 = false;    // AVX-512 F, BW, CD, DQ, VL and the OS saves zmm
  bool avx512_bf16 = false;
  bool avx512_vnni = false;
};

const CpuFeatures& cpu_features();
std::vector<std::pair<std::string, bool>> cpu_feature_list();
std::string cpu_brand();

}  // namespace lmhead
