// Which kernels, which threads.
#include <cstdlib>

#include "bindings/arguments/options.hpp"
#include "bindings/topics.hpp"
#include "core/parallel.hpp"
#include "dispatch/cpu.hpp"
#include "dispatch/tables.hpp"

#include <pybind11/stl.h>

namespace lmhead {
namespace {

void read_environment() {
  const char* isa = std::getenv("LMHEAD_ISA");
  try {
    choose_table(isa && *isa ? isa : nullptr);
  } catch (const std::invalid_argument& error) {
    throw py::import_error(error.what());
  }
  const char* threads = std::getenv("LMHEAD_NUM_THREADS");
  if (!threads || !*threads) return;
  char* end = nullptr;
  const long n = std::strtol(threads, &end, 10);
  if (*end || n < 1 || n > kMaxThreads)
    throw py::import_error(message("LMHEAD_NUM_THREADS", "an integer from 1 to " + std::to_string(kMaxThreads),
                                   "'" + std::string(threads) + "'", "unset it to use every CPU the process may run on"));
  set_default_threads(static_cast<int>(n));
}

py::dict features() {
  py::dict d;
  for (const auto& [name, present] : cpu_feature_list()) d[py::str(name)] = present;
  return d;
}

py::dict config() {
  py::dict d;
  d["version"] = LMHEAD_VERSION;
  d["isa"] = table().isa;
  d["compiled_isas"] = compiled_isas();
  d["usable_isas"] = usable_isas();
  d["threads"] = default_threads();
  d["available_threads"] = available_threads();
  d["parallel"] = parallel_backend();
  d["openmp"] = LMHEAD_OPENMP_NAME;
  d["cpu"] = cpu_brand();
  d["cpu_features"] = features();
  d["compiler"] = LMHEAD_COMPILER;
  return d;
}

}  // namespace

void bind_runtime(py::module_& m) {
  read_environment();
  m.attr("__version__") = LMHEAD_VERSION;
  m.def("config", &config);
  m.def("isa", [] { return table().isa; });
  m.def("compiled_isas", &compiled_isas);
  m.def("usable_isas", &usable_isas);
  // For tests: the table is a property of the process, so no other thread may be computing.
  m.def("use_isa", [](const std::string& name) { choose_table(name.c_str()); });
  m.def("cpu_features", &features);
  m.def("get_num_threads", &default_threads);
  m.def("set_num_threads", [](py::handle n) {
    set_default_threads(static_cast<int>(integer_option("n", n, 1, kMaxThreads, "an integer from 1 to " + std::to_string(kMaxThreads))));
  });
  m.def("check_threads", [](py::handle threads) { return threads_option(threads); });
}

}  // namespace lmhead
