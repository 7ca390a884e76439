#include "bindings/arguments/loss_options.hpp"

#include <cmath>
#include <limits>

#include "bindings/arguments/options.hpp"

namespace lmhead {
namespace {

const char* reduction_text(Reduction reduction) {
  return reduction == Reduction::mean ? "'mean'" : reduction == Reduction::sum ? "'sum'" : "'none'";
}

// `condition` follows "a real number"; NaN meets no `holds`.
template <class Holds>
double finite_option(const char* name, py::handle object, const std::string& condition, Holds holds) {
  const std::string expected = "a real number " + condition;
  const double x = real_option(name, object, expected);
  if (!std::isfinite(x) || !holds(x)) value_error(name, expected, number_text(x));
  return x;
}

double finite_of_at_least_0(const char* name, py::handle object) {
  return finite_option(name, object, "of at least 0 and finite", [](double x) { return x >= 0; });
}

std::string word_option(const char* name, py::handle object, const char* allowed) {
  if (!PyUnicode_Check(object.ptr())) type_error(name, allowed, value_text(object));
  // Not every str is UTF-8: a lone surrogate is none of the words either.
  Py_ssize_t size = 0;
  const char* word = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (!word) {
    PyErr_Clear();
    return "";
  }
  return std::string(word, static_cast<size_t>(size));
}

Reduction reduction_option(py::handle object) {
  const char* allowed = "'mean', 'sum' or 'none'";
  const std::string word = word_option("reduction", object, allowed);
  if (word == "mean") return Reduction::mean;
  if (word == "sum") return Reduction::sum;
  if (word == "none") return Reduction::none;
  value_error("reduction", allowed, value_text(object));
}

double empty_option(py::handle object) {
  const char* allowed = "'nan' or 'zero'";
  const std::string word = word_option("empty", object, allowed);
  if (word == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (word == "zero") return 0;
  value_error("empty", allowed, value_text(object));
}

double num_items_option(py::handle object, Reduction reduction) {
  if (object.is_none()) return 0;
  const double n = finite_option("num_items", object, "above 0 and finite", [](double x) { return x > 0; });
  if (reduction != Reduction::mean)
    value_error("num_items", std::string("None as reduction is ") + reduction_text(reduction), number_text(n));
  return n;
}

}  // namespace

bool flag_option(const char* name, py::handle object) {
  const std::optional<bool> flag = bool_of(object);
  if (!flag) type_error(name, "True or False", value_text(object));
  return *flag;
}

LossArguments loss_arguments(const py::kwargs& given, int64_t vocabulary, const std::string& origin, bool doubles) {
  const auto argument = [&](const char* name) { return py::object(given[name]); };
  LossArguments a;
  LossOptions& o = a.options;
  o.reduction = reduction_option(argument("reduction"));
  o.num_items = num_items_option(argument("num_items"), o.reduction);
  a.bias = vector_argument("bias", argument("bias"), "V", vocabulary, origin, doubles);
  o.head.bias = a.bias.data();
  a.class_weight = vector_argument("class_weight", argument("class_weight"), "V", vocabulary, origin, true);
  o.class_weight = a.class_weight.doubles();
  o.label_smoothing = finite_option("label_smoothing", argument("label_smoothing"), "from 0 to 1", [](double x) { return x >= 0 && x <= 1; });
  o.head.softcap = softcap_option(argument("softcap"));
  o.head.scale = scale_option(argument("scale"));
  o.temperature = temperature_option(argument("temperature"));
  o.lse_square_scale = finite_of_at_least_0("lse_square_scale", argument("lse_square_scale"));
  o.empty = empty_option(argument("empty"));
  a.stats = flag_option("stats", argument("stats"));
  return a;
}

int64_t chunk_rows_option(py::handle object) { return object.is_none() ? 0 : integer_of_at_least("chunk_rows", object, 1); }

double filter_eps_option(py::handle object) { return object.is_none() ? 0 : finite_of_at_least_0("filter_eps", object); }

SmallArray grad_output_argument(py::handle object, Reduction reduction, const std::vector<int64_t>& loss_shape, Counted& counted) {
  const std::vector<int64_t> shape = reduction == Reduction::none ? loss_shape : std::vector<int64_t>{};
  SmallArray given = small_array("grad_output", object, shape,
                                 "shape " + shape_text(shape) + " as the loss of reduction " + reduction_text(reduction), true);
  if (!given.given) return given;
  counted.grad_output.reserve(counted.places.size());
  for (const int64_t place : counted.places) counted.grad_output.push_back(given.doubles()[reduction == Reduction::none ? place : 0]);
  return given;
}

Wanted wrt_option(py::handle object) {
  const char* expected = "a sequence of 'hidden', 'weight' and 'bias'";
  const bool text = PyUnicode_Check(object.ptr()) || PyBytes_Check(object.ptr());
  if (text || !py::isinstance(object, py::module_::import("collections.abc").attr("Collection"))) type_error("wrt", expected, value_text(object));
  Wanted wanted;
  const auto names = py::reinterpret_steal<py::tuple>(PySequence_Tuple(object.ptr()));
  if (!names) throw py::error_already_set();
  for (const py::handle name : names) {
    if (!PyUnicode_Check(name.ptr())) type_error("wrt", expected, value_text(name) + " among them");
    const std::string word = word_option("wrt", name, expected);
    if (word != "hidden" && word != "weight" && word != "bias") value_error("wrt", expected, value_text(name) + " among them");
    (word == "hidden" ? wanted.hidden : word == "weight" ? wanted.weight : wanted.bias) = true;
  }
  wanted.text = value_text(names);
  return wanted;
}

}  // namespace lmhead
