#include "bindings/arguments/allowed_ids.hpp"
#include "bindings/arguments/head_options.hpp"
#include "bindings/arguments/score_options.hpp"
#include "bindings/topics.hpp"

namespace lmhead {
namespace {

// Arrays for what is asked, None for the rest, in the order of TokenScores.
struct Results {
  py::object logprob = py::none(), logsumexp, rank = py::none(), entropy, argmax, top_logprobs = py::none(), top_ids = py::none(),
             chosen_logprobs = py::none();
  ScoresTarget target;

  Results(const ScoreArguments& a, bool doubles) {
    target.n_places = a.scored.counted.n_places;
    target.top_n = a.top_n;
    target.n_chosen = a.n_chosen;
    const auto floats = [&](const std::vector<int64_t>& shape, py::object& array, void*& data) {
      py::array made = doubles ? py::array(py::array_t<double>(shape)) : py::array(py::array_t<float>(shape));
      data = made.mutable_data();
      array = std::move(made);
    };
    const auto integers = [&](const std::vector<int64_t>& shape, py::object& array, int64_t*& data) {
      py::array_t<int64_t> made(shape);
      data = made.mutable_data();
      array = std::move(made);
    };
    const auto of_each = [&](int64_t n) {
      std::vector<int64_t> shape = a.shape;
      shape.push_back(n);
      return shape;
    };
    floats(a.shape, logsumexp, target.logsumexp);
    floats(a.shape, entropy, target.entropy);
    integers(a.shape, argmax, target.argmax);
    if (a.has_targets) {
      floats(a.shape, logprob, target.logprob);
      integers(a.shape, rank, target.rank);
    }
    if (a.top_n > 0) {
      floats(of_each(a.top_n), top_logprobs, target.top_logprobs);
      integers(of_each(a.top_n), top_ids, target.top_ids);
    }
    if (a.has_chosen) floats(of_each(a.n_chosen), chosen_logprobs, target.chosen_logprobs);
  }

  py::tuple finish() const { return py::make_tuple(logprob, logsumexp, rank, entropy, argmax, top_logprobs, top_ids, chosen_logprobs); }
};

// Arguments after the arrays come by keyword, all of them: the signatures in Python are what gives them their defaults.
py::tuple of_hidden(py::handle hidden, py::handle weight, py::handle targets, const py::kwargs& given) {
  const HeadArguments head = head_arguments(hidden, weight, py::object(given["bias"]), py::object(given["softcap"]), py::object(given["scale"]));
  const ScoreOptions options{head.options, temperature_option(py::object(given["temperature"]))};
  const int threads = threads_option(py::object(given["threads"]));
  const AllowedIds ids = allowed_argument(py::object(given["mask"]), py::object(given["allowed_ids"]), py::object(given["vocab_ids"]), head.head);
  const ScoreArguments a = score_arguments(targets, head.head.hidden, ids.vocabulary, given);
  const Results results(a, head.head.doubles());
  const Rows hidden_rows = head.head.hidden.rows(), weight_rows = head.head.weight.rows();
  {
    const py::gil_scoped_release release;
    logits_scores(hidden_rows, weight_rows, options, ids.allowed, a.scored, results.target, threads);
  }
  return results.finish();
}

py::tuple of_logits(py::handle logits, py::handle targets, const py::kwargs& given) {
  const Operand rows = row_operand("logits", "(..., V)", logits);
  const ScoreOptions options{{}, temperature_option(py::object(given["temperature"]))};
  const int threads = threads_option(py::object(given["threads"]));
  const AllowedIds ids = allowed_argument(py::object(given["mask"]), py::object(given["allowed_ids"]), rows);
  const ScoreArguments a = score_arguments(targets, rows, ids.vocabulary, given);
  const Results results(a, rows.dtype == DType::float64);
  const Rows view = rows.rows();
  {
    const py::gil_scoped_release release;
    scores(view, options, ids.allowed, a.scored, results.target, threads);
  }
  return results.finish();
}

}  // namespace

void bind_scores(py::module_& m) {
  m.def("logits_scores", &of_hidden);
  m.def("scores", &of_logits);
}

}  // namespace lmhead
