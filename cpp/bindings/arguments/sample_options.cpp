#include "bindings/arguments/sample_options.hpp"

#include <cmath>
#include <cstring>

#include "bindings/arguments/options.hpp"
#include "core/random.hpp"

namespace lmhead {
namespace {

std::string word_of(const char* name, py::handle object, const char* expected) {
  if (!PyUnicode_Check(object.ptr())) type_error(name, expected, value_text(object));
  Py_ssize_t size = 0;
  const char* word = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (word) return std::string(word, static_cast<size_t>(size));
  PyErr_Clear();  // a lone surrogate is no word
  return "";
}

FilterOrder order_option(py::handle object) {
  const char* expected = "'hf', 'vllm' or 'llama.cpp'";
  const std::string word = word_of("order", object, expected);
  if (word == "hf") return FilterOrder::hf;
  if (word == "vllm") return FilterOrder::vllm;
  if (word == "llama.cpp") return FilterOrder::llama_cpp;
  value_error("order", expected, value_text(object));
}

Logprobs logprobs_option(py::handle object) {
  if (object.is_none()) return Logprobs::none;
  const char* expected = "'raw' or 'processed'";
  const std::string word = word_of("logprobs", object, expected);
  if (word == "raw") return Logprobs::raw;
  if (word == "processed") return Logprobs::processed;
  value_error("logprobs", expected, value_text(object));
}

// 64 bits of the operating system's.
uint64_t fresh_seed() {
  const py::bytes bytes = py::module_::import("os").attr("urandom")(8);
  const std::string text = bytes;
  uint64_t seed = 0;
  std::memcpy(&seed, text.data(), sizeof(seed));
  return seed;
}

}  // namespace

void add_filters(const py::kwargs& given, const RowShape& rows, SampleOptions& options) {
  const auto argument = [&](const char* name) { return py::object(given[name]); };
  const auto up_to_1 = [](double x) { return x > 0 && x <= 1; };
  const PerRow<double> temperature =
      reals_by_row("temperature", argument("temperature"), rows, ">= 0 and finite", [](double x) { return x >= 0 && std::isfinite(x); });
  const PerRow<int64_t> top_k = integers_by_row("top_k", argument("top_k"), rows, -1);
  const PerRow<double> top_p = reals_by_row("top_p", argument("top_p"), rows, "> 0 and <= 1", up_to_1);
  const PerRow<double> min_p = reals_by_row("min_p", argument("min_p"), rows, ">= 0 and <= 1", [](double x) { return x >= 0 && x <= 1; });
  const PerRow<double> typical_p = reals_by_row("typical_p", argument("typical_p"), rows, "> 0 and <= 1", up_to_1);
  const FilterOrder order = order_option(argument("order"));
  for (int64_t row = 0; row < rows.count(); ++row) {
    SampleRow wanted;
    wanted.filters = {temperature[row], top_k[row], top_p[row], min_p[row], typical_p[row], order};
    options.rows.push_back(wanted);
  }
}

SampleOptions sample_options(const py::kwargs& given, const RowShape& rows, int64_t vocabulary) {
  const auto argument = [&](const char* name) { return py::object(given[name]); };
  SampleOptions options;
  add_filters(given, rows, options);
  const py::object seed = argument("seed");
  const PerRow<uint64_t> seeds = seed.is_none() ? PerRow<uint64_t>{{fresh_seed()}, true} : words_by_row("seed", seed, rows);
  const PerRow<uint64_t> positions = words_by_row("position", argument("position"), rows);
  options.logprobs = logprobs_option(argument("logprobs"));
  options.top_n = integer_option("top_n", argument("top_n"), 0, vocabulary, "an integer from 0 to V = " + std::to_string(vocabulary));
  if (options.top_n > 0 && options.logprobs == Logprobs::none)
    value_error("top_n", "0 as logprobs is None", std::to_string(options.top_n));
  for (int64_t row = 0; row < rows.count(); ++row) {
    SampleRow& wanted = options.rows[static_cast<size_t>(row)];
    wanted.seed = seeds.single ? seed_of_row(seeds[row], row) : seeds[row];
    wanted.position = positions[row];
  }
  add_edits(given, rows, vocabulary, options);
  return options;
}

}  // namespace lmhead
