#include "bindings/arguments/dlpack.hpp"

#include "bindings/arguments/array.hpp"
#include "dispatch/tables.hpp"

namespace lmhead {
namespace {

// The part of the DLPack ABI (version 0, which every producer still answers a call without arguments with) that is read here.
struct Device { int32_t type, id; };
struct Element { uint8_t code, bits; uint16_t lanes; };
struct Described {
  void* data;
  Device device;
  int32_t ndim;
  Element element;
  int64_t* shape;
  int64_t* strides;  // elements; null: row-major
  uint64_t byte_offset;
};
struct ManagedTensor {
  Described tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

constexpr int32_t kCpu = 1;

// By NumPy's names; the codes of DLPack count from integers over unsigned, floating, (opaque), bfloat, complex to bool.
std::string dtype_name(Element e) {
  static constexpr const char* kinds[] = {"int", "uint", "float", "", "bfloat", "complex", "bool"};
  if (e.lanes != 1 || e.code > 6 || e.code == 3 || (e.code == 4 && e.bits != 16)) return "";
  const bool known = e.code == 6 ? e.bits == 8
                   : e.code == 5 ? e.bits == 64 || e.bits == 128
                   : e.code == 2 ? e.bits == 16 || e.bits == 32 || e.bits == 64
                                 : e.bits == 8 || e.bits == 16 || e.bits == 32 || e.bits == 64;
  if (!known) return "";
  return e.code == 6 ? "bool" : kinds[e.code] + std::to_string(e.bits);
}

}  // namespace

Memory Tensor::memory(const char* name) const {
  const auto [first, last] = extent(data, item_size, shape, strides);
  return {name, owner, first, last};
}

bool speaks_dlpack(py::handle object) {
  return PyObject_HasAttrString(object.ptr(), "__dlpack__") && PyObject_HasAttrString(object.ptr(), "__dlpack_device__");
}

Tensor tensor_from_dlpack(const char* name, py::handle object) {
  const auto device = object.attr("__dlpack_device__")().cast<py::tuple>();
  if (device.size() != 2 || device[0].cast<int64_t>() != kCpu)
    type_error(name, "a tensor on the CPU", "a " + type_text(object) + " on another device", "move it to the CPU first");
  // A tensor of PyTorch may be a view that negates its memory, which DLPack does not tell.
  if (PyObject_HasAttrString(object.ptr(), "is_neg") && py::bool_(object.attr("is_neg")()))
    type_error(name, "a tensor whose memory holds its values", "a negated view", "resolve it first, for example with .resolve_neg()");
  py::object capsule;
  try {
    capsule = object.attr("__dlpack__")();
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) throw;
    type_error(name, "a tensor that can be shared through DLPack", "a " + type_text(object) + " that refuses (" +
               std::string(py::str(error.value())) + ")", "pass a plain dense CPU tensor, detached");
  }
  if (!PyCapsule_IsValid(capsule.ptr(), "dltensor"))
    type_error(name, "a tensor that can be shared through DLPack", "a " + type_text(object) + " whose __dlpack__ gives no fresh capsule");
  auto* managed = static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  Tensor view;
  view.owner = py::capsule(managed, [](void* p) {
    auto* owned = static_cast<ManagedTensor*>(p);
    if (owned->deleter) owned->deleter(owned);
  });
  const Described& tensor = managed->tensor;
  view.dtype = dtype_name(tensor.element);
  view.item_size = tensor.element.bits / 8;
  view.data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  view.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  view.strides.resize(static_cast<size_t>(tensor.ndim));
  ptrdiff_t dense = view.item_size;
  for (int32_t axis = tensor.ndim - 1; axis >= 0; --axis) {
    view.strides[static_cast<size_t>(axis)] = tensor.strides ? tensor.strides[axis] * view.item_size : dense;
    dense *= tensor.shape[axis];
  }
  return view;
}

py::array array_or_tensor(const char* name, py::handle object) {
  const bool tensor = !py::isinstance<py::array>(object) && speaks_dlpack(object);
  return tensor ? array_of(name, tensor_from_dlpack(name, object)) : array_as_is(name, object);
}

py::array array_of(const char* name, const Tensor& tensor) {
  if (tensor.dtype.empty()) type_error(name, "an array of real numbers", "a tensor of another dtype", "cast it, for example to float32");
  if (tensor.dtype != "bfloat16") return py::array(py::dtype(tensor.dtype), tensor.shape, tensor.strides, tensor.data, tensor.owner);
  const Operand view = operand_of(name, tensor);
  py::array_t<float> result(tensor.shape);
  Operand axes = view;
  if (axes.shape.empty()) {  // a single number is a row of one
    axes.shape.push_back(1);
    axes.strides.push_back(tensor.item_size);
  }
  if (axes.size() == 0) return result;
  const Rows rows = axes.rows();
  Buffer<char> temporary;
  for (int64_t i = 0; i < rows.n_rows; ++i)
    copy_row(table(), rows, i, 0, rows.width, RowLayout::wide, result.mutable_data() + i * rows.width, temporary);
  return result;
}

Operand operand_of(const char* name, const Tensor& tensor) {
  Operand view;
  view.name = name;
  view.owner = tensor.owner;
  view.data = tensor.data;
  view.shape = tensor.shape;
  view.strides = tensor.strides;
  if (tensor.dtype == "float32") view.dtype = DType::float32;
  else if (tensor.dtype == "float64") view.dtype = DType::float64;
  else if (tensor.dtype == "float16") view.dtype = DType::float16;
  else if (tensor.dtype == "bfloat16") view.dtype = DType::bfloat16;
  else type_error(name, kFloatingArray, "a tensor of another dtype", "cast it, for example to float32");
  return view;
}

}  // namespace lmhead
