#include "bindings/arguments/dlpack.hpp"

namespace lmhead {
namespace {

// The part of the DLPack ABI (version 0, which every producer still answers a call without arguments with) that is read here.
struct Device { int32_t type, id; };
struct Element { uint8_t code, bits; uint16_t lanes; };
struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  Element element;
  int64_t* shape;
  int64_t* strides;  // elements; null: row-major
  uint64_t byte_offset;
};
struct ManagedTensor {
  Tensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

constexpr int32_t kCpu = 1;
constexpr uint8_t kFloat = 2, kBfloat = 4;

}  // namespace

bool speaks_dlpack(py::handle object) {
  return PyObject_HasAttrString(object.ptr(), "__dlpack__") && PyObject_HasAttrString(object.ptr(), "__dlpack_device__");
}

Operand operand_from_dlpack(const char* name, py::handle object) {
  const auto device = object.attr("__dlpack_device__")().cast<py::tuple>();
  if (device.size() != 2 || device[0].cast<int64_t>() != kCpu)
    type_error(name, "an array in CPU memory", "a " + type_text(object) + " on another device", "move it to the CPU first");
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
  Operand view;
  view.name = name;
  view.owner = py::capsule(managed, [](void* p) {
    auto* owned = static_cast<ManagedTensor*>(p);
    if (owned->deleter) owned->deleter(owned);
  });
  const Tensor& tensor = managed->tensor;
  const Element e = tensor.element;
  if (e.lanes == 1 && e.code == kFloat && e.bits == 32) view.dtype = DType::float32;
  else if (e.lanes == 1 && e.code == kFloat && e.bits == 64) view.dtype = DType::float64;
  else if (e.lanes == 1 && e.code == kFloat && e.bits == 16) view.dtype = DType::float16;
  else if (e.lanes == 1 && e.code == kBfloat && e.bits == 16) view.dtype = DType::bfloat16;
  else
    type_error(name, kFloatingArray, "a " + type_text(object) + " of another dtype", "cast it, for example to float32");
  view.data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  view.shape.assign(tensor.shape, tensor.shape + tensor.ndim);
  view.strides.resize(static_cast<size_t>(tensor.ndim));
  ptrdiff_t dense = item_size(view.dtype);
  for (int32_t axis = tensor.ndim - 1; axis >= 0; --axis) {
    view.strides[static_cast<size_t>(axis)] = tensor.strides ? tensor.strides[axis] * item_size(view.dtype) : dense;
    dense *= tensor.shape[axis];
  }
  return view;
}

}  // namespace lmhead
