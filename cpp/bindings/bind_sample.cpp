// Sampling, and for tests the parts that decide a draw.
#include "bindings/arguments/allowed_ids.hpp"
#include "bindings/arguments/head_options.hpp"
#include "bindings/arguments/sample_options.hpp"
#include "bindings/arguments/screened_weight.hpp"
#include "bindings/topics.hpp"
#include "core/gumbel.hpp"
#include "core/random.hpp"
#include "core/screen.hpp"

namespace lmhead {
namespace {

// Arrays for what is asked for.
struct Draws {
  py::array_t<int64_t> token;
  py::object logprob = py::none(), top_ids = py::none(), top_logprobs = py::none();
  SampleTarget target;

  Draws(const std::vector<int64_t>& shape, const SampleOptions& options, bool doubles) : token(shape) {
    const auto numbers = [doubles](const std::vector<int64_t>& s) { return doubles ? py::array(py::array_t<double>(s)) : py::array(py::array_t<float>(s)); };
    target.token = token.mutable_data();
    if (options.logprobs != Logprobs::none) {
      py::array array = numbers(shape);
      target.logprob = array.mutable_data();
      logprob = array;
    }
    if (options.top_n > 0) {
      std::vector<int64_t> longer = shape;
      longer.push_back(options.top_n);
      py::array_t<int64_t> ids(longer);
      py::array array = numbers(longer);
      target.top_ids = ids.mutable_data();
      target.top_logprobs = array.mutable_data();
      top_ids = ids;
      top_logprobs = array;
    }
  }

  py::tuple result() const { return py::make_tuple(token, logprob, top_ids, top_logprobs); }
};

void check(const RowFault& found, const char* name, const RowShape& rows, const AllowedIds& ids, const py::kwargs& given) {
  if (found.fault == Fault::none) return;
  const bool masked = !py::object(given["mask"]).is_none();
  if (found.fault == Fault::nothing && !ids.allowed.all() && ids.allowed.count(found.row) == 0)
    value_error(masked ? "mask" : "allowed_ids", "an allowed id" + rows.in_row(found.row), "none");
  const char* what = found.fault == Fault::nan ? "NaN" : found.fault == Fault::infinite ? "+inf" : "nothing above -inf";
  value_error(name, "finite logits to draw from" + rows.in_row(found.row), what);
}

// `screen`: made from the weight, or null.
py::tuple sample_of_states(const Screen* screen, py::handle hidden, py::handle weight, const py::kwargs& given) {
  const HeadArguments a = head_arguments(hidden, weight, py::object(given["bias"]), py::object(given["softcap"]), py::object(given["scale"]));
  const RowShape rows{leading(a.head.hidden.shape), "hidden of shape " + shape_text(a.head.hidden.shape)};
  const AllowedIds ids = allowed_argument(py::object(given["mask"]), py::object(given["allowed_ids"]), py::object(given["vocab_ids"]), a.head);
  const SampleOptions options = sample_options(given, rows, ids.vocabulary);
  if (screen) check_made_from(*screen, a.head.weight);
  const int threads = threads_option(py::object(given["threads"]));
  const Draws draws(rows.shape, options, a.head.doubles());
  const Rows hidden_rows = a.head.hidden.rows(), weight_rows = a.head.weight.rows();
  RowFault fault;
  {
    const py::gil_scoped_release release;
    if (screen && ids.allowed.all() && suits_screen(options, ids.vocabulary))
      fault = screened_sample(*screen, hidden_rows, weight_rows, a.options, options, draws.target, threads);
    else
      fault = logits_sample(hidden_rows, weight_rows, a.options, ids.allowed, options, draws.target, threads);
  }
  check(fault, "hidden", rows, ids, given);
  return draws.result();
}

py::tuple sample_of_logits(py::handle logits, const py::kwargs& given) {
  const Operand operand = row_operand("logits", "(..., V)", logits);
  const RowShape rows{leading(operand.shape), "logits of shape " + shape_text(operand.shape)};
  const AllowedIds ids = allowed_argument(py::object(given["mask"]), py::object(given["allowed_ids"]), operand);
  const SampleOptions options = sample_options(given, rows, operand.shape.back());
  const int threads = threads_option(py::object(given["threads"]));
  const Draws draws(rows.shape, options, operand.dtype == DType::float64);
  const Rows view = operand.rows();
  RowFault fault;
  {
    const py::gil_scoped_release release;
    fault = sample(view, ids.allowed, options, draws.target, threads);
  }
  check(fault, "logits", rows, ids, given);
  return draws.result();
}

py::tuple philox_words(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t key_low, uint32_t key_high) {
  const RandomWords words = philox({{c0, c1, c2, c3}}, key_low, key_high);
  return py::make_tuple(words.word[0], words.word[1], words.word[2], words.word[3]);
}

}  // namespace

void bind_sample(py::module_& m) {
  m.def("logits_sample", [](py::handle hidden, py::handle weight, const py::kwargs& given) { return sample_of_states(nullptr, hidden, weight, given); });
  m.def("screened_sample", [](const Screen& screen, py::handle hidden, py::handle weight, const py::kwargs& given) {
    return sample_of_states(&screen, hidden, weight, given);
  });
  m.def("sample", &sample_of_logits);
  m.def("philox", &philox_words);
  m.def("noise_bits", [](uint64_t seed, uint64_t position, int64_t id) { return Noise(seed, position).bits_of(id); });
  m.def("seed_of_row", &seed_of_row);
  m.def("gumbel", &gumbel_of);
}

}  // namespace lmhead
