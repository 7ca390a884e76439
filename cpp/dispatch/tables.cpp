#include "dispatch/tables.hpp"

#include <atomic>
#include <stdexcept>

#include "dispatch/cpu.hpp"
#include "isa/tables.hpp"

namespace lmhead {
namespace {

struct Entry {
  const char* isa;  // asking the table itself would run code of an ISA that the CPU may lack
  const KernelTable* (*get)();
  bool usable;
};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      {"scalar", table_scalar, true},
#if defined(__x86_64__)
      {"avx2", table_avx2, cpu_features().x86_64_v3},          // Haswell 2013, Excavator 2015
      {"avx512", table_avx512, cpu_features().x86_64_v4},        // Skylake-X 2017, Zen 4 2022
      {"avx512vnni", table_avx512vnni, cpu_features().avx512_vnni},  // Cascade Lake 2019, Zen 4 2022
      {"avx512bf16", table_avx512bf16, cpu_features().avx512_bf16 && cpu_features().avx512_vnni},  // Cooper Lake 2020, Zen 4 2022
#endif
  };
  return all;
}

std::atomic<const KernelTable*> in_use{nullptr};

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::vector<std::string> compiled_isas() {
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.emplace_back(entry.isa);
  return names;
}

std::vector<std::string> usable_isas() {
  std::vector<std::string> names;
  for (const Entry& entry : entries())
    if (entry.usable) names.emplace_back(entry.isa);
  return names;
}

void choose_table(const char* name) {
  const KernelTable* best = nullptr;
  for (const Entry& entry : entries()) {
    if (!entry.usable) continue;
    if (!name || std::string(name) == entry.isa) best = entry.get();
  }
  if (!best)
    throw std::invalid_argument("LMHEAD_ISA: expected one of " + joined(usable_isas()) + ", got '" + name + "'; this build has " +
                                joined(compiled_isas()) + ", of which this CPU runs those named first");
  in_use.store(best, std::memory_order_relaxed);
}

const KernelTable& table() { return *in_use.load(std::memory_order_relaxed); }

}  // namespace lmhead
