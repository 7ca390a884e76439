// What a prepared head is made of, beside its screen: what is known of a weight, its copy in huge pages, and vectors that it keeps.
#include "bindings/arguments/options.hpp"
#include "bindings/arguments/small_array.hpp"
#include "bindings/arguments/stored_weight.hpp"
#include "bindings/topics.hpp"
#include "core/prepared_copy.hpp"
#include "dispatch/cache.hpp"
#include "dispatch/tables.hpp"

namespace lmhead {
namespace {

// An array that owns its memory.
py::array owning_array(const py::dtype& dtype, const std::vector<int64_t>& shape, Buffer<char> memory) {
  auto kept = std::make_unique<Buffer<char>>(std::move(memory));
  char* data = kept->get();
  const py::capsule owner(kept.release(), [](void* p) { delete static_cast<Buffer<char>*>(p); });
  return py::array(dtype, shape, data, owner);
}

// Rows of bytes, whatever they mean.
py::array copy_of_bytes(const py::array& array, int threads) {
  const int64_t n_rows = array.shape(0), row_bytes = array.shape(1) * array.itemsize();
  const char* from = static_cast<const char*>(array.data());
  const ptrdiff_t stride = array.strides(0);
  Buffer<char> copy;
  {
    const py::gil_scoped_release release;
    copy = prepared_bytes(from, n_rows, row_bytes, stride, threads);
  }
  return owning_array(array.dtype(), {n_rows, array.shape(1)}, std::move(copy));
}

py::object prepared_quantized(const StoredWeight& weight, int threads) {
  const py::array values = copy_of_bytes(weight.values, threads);
  if (weight.scales.ndim() != 2) return py::cast(q8_0_weight(values));  // blocks hold their scales
  const QuantizedRows& q = weight.quantized;
  return py::cast(quantized_weight(values, copy_of_bytes(weight.scales, threads), weight.shape[1], q.bits, q.group));
}

// The same weight, in memory of its own.
py::object prepared_copy_of(py::handle object, py::handle threads) {
  const Operand weight = matrix_argument(object);
  const int n_threads = threads_option(threads);
  if (weight.quantized.bits != 0) return prepared_quantized(weight.owner.cast<const StoredWeight&>(), n_threads);
  const Rows rows = weight.rows();
  Buffer<char> copy;
  {
    const py::gil_scoped_release release;
    copy = prepared_copy(table(), rows, n_threads);
  }
  const bool half = weight.dtype == DType::bfloat16;
  const py::array array = owning_array(py::dtype(half ? "uint16" : dtype_text(weight.dtype)), weight.shape, std::move(copy));
  return half ? py::cast(bfloat16_weight(array)) : py::object(array);
}

// V, D, what its elements are, and how many bytes they take.
py::tuple weight_facts(py::handle object) {
  const Operand weight = matrix_argument(object);
  const int64_t n = weight.shape[0] * weight.shape[1];
  if (weight.quantized.bits == 0) return py::make_tuple(weight.shape[0], weight.shape[1], dtype_text(weight.dtype), n * item_size(weight.dtype));
  const StoredWeight& stored = weight.owner.cast<const StoredWeight&>();
  const int64_t bytes = stored.values.nbytes() + stored.scales.nbytes();
  return py::make_tuple(weight.shape[0], weight.shape[1], "int" + std::to_string(weight.quantized.bits), bytes);
}

}  // namespace

void bind_lm_head(py::module_& m) {
  m.def("weight_facts", &weight_facts);
  m.def("prepared_copy", &prepared_copy_of, py::arg("weight"), py::arg("threads") = py::none());
  m.def("kept_vector", [](const std::string& name, py::handle object, bool doubles) { return kept_vector(name.c_str(), object, doubles); },
        py::arg("name"), py::arg("object"), py::arg("doubles") = true);
  m.def("last_level_cache_bytes", &last_level_cache_bytes);
}

}  // namespace lmhead
