// The Python class Generator: a stream of random numbers.
#include <cstring>
#include <random>

#include "arete/core/thread_generator.h"
#include "arete/ops/creation.h"
#include "convert.h"
#include "tensor_object.h"

namespace arete::python {

namespace {

struct GeneratorObject {
  PyObject_HEAD Generator* own;  // null: the default generator of the thread that asks
  Device device;                 // as the program said; the numbers are the same on all
};
PyTypeObject* generator_type;

GeneratorObject* object_in(PyObject* o) { return reinterpret_cast<GeneratorObject*>(o); }
Generator* generator_in(PyObject* o) {
  return object_in(o)->own ? object_in(o)->own : &default_generator();
}

PyObject* generator_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"device", nullptr};
  PyObject* device = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &device))
    return nullptr;
  return guarded([&]() -> PyObject* {
    Device d;
    if (device && device != Py_None && !to_device(device, d))
      type_error("Generator(): expected a device");
    PyObject* o = checked(type->tp_alloc(type, 0));
    object_in(o)->own = new Generator(67280421310721ull);  // PyTorch's default seed
    object_in(o)->device = d.resolved();
    return o;
  });
}
void generator_dealloc(PyObject* o) {
  delete object_in(o)->own;
  PyTypeObject* const type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}
PyObject* generator_manual_seed(PyObject* o, PyObject* seed) {
  return guarded([&]() -> PyObject* {
    int64_t v = 0;
    if (PyLong_Check(seed)) {  // from -2^63 up to 2^64 - 1
      int overflow = 0;
      v = PyLong_AsLongLongAndOverflow(seed, &overflow);
      if (overflow) v = int64_t(PyLong_AsUnsignedLongLong(seed));
      if (PyErr_Occurred()) throw PythonError{};
    } else if (!to_int(seed, v)) {
      type_error("manual_seed expected an int");
    }
    generator_in(o)->manual_seed(uint64_t(v));
    return Py_NewRef(o);
  });
}
PyObject* generator_initial_seed(PyObject* o, PyObject*) {
  return PyLong_FromUnsignedLongLong(generator_in(o)->state().seed);
}
PyObject* generator_seed(PyObject* o, PyObject*) {
  return guarded([&]() -> PyObject* {
    std::random_device source;
    const uint64_t seed = (uint64_t(source()) << 32 | source()) >> 1;
    generator_in(o)->manual_seed(seed);
    return PyLong_FromUnsignedLongLong(seed);
  });
}
// The state as a tensor of bytes: seed and offset.
PyObject* generator_get_state(PyObject* o, PyObject*) {
  return guarded([&]() -> PyObject* {
    const Generator::State s = generator_in(o)->state();
    const uint64_t words[] = {s.seed, s.offset};
    const Tensor t = empty({sizeof words}, TensorOptions(kUInt8));
    std::memcpy(t.data_ptr(), words, sizeof words);
    return wrap(t);
  });
}
PyObject* generator_set_state(PyObject* o, PyObject* state) {
  return guarded([&]() -> PyObject* {
    uint64_t words[2];
    if (!is_tensor(state) || tensor_of(state).dtype() != kUInt8 ||
        tensor_of(state).nbytes() != sizeof words)
      type_error(
          "the state of a generator is a uint8 tensor of 16 elements, as get_state() gives it");
    const Tensor bytes = tensor_of(state).to(kCPU).contiguous();
    std::memcpy(words, bytes.data_ptr(), sizeof words);
    generator_in(o)->set_state({words[0], words[1]});
    return Py_NewRef(o);
  });
}
PyObject* generator_clone_state(PyObject* o, PyObject*) {
  return guarded([&]() -> PyObject* {
    PyObject* copy = checked(generator_type->tp_alloc(generator_type, 0));
    object_in(copy)->own = new Generator(0);
    object_in(copy)->own->set_state(generator_in(o)->state());
    object_in(copy)->device = object_in(o)->device;
    return copy;
  });
}
PyObject* generator_device(PyObject* o, void*) { return wrap(object_in(o)->device); }
PyMethodDef generator_methods[] = {
    {"manual_seed", generator_manual_seed, METH_O, "Starts the stream of numbers of a seed."},
    {"initial_seed", generator_initial_seed, METH_NOARGS, "The seed."},
    {"seed", generator_seed, METH_NOARGS, "Seeds from the operating system, and gives the seed."},
    {"get_state", generator_get_state, METH_NOARGS, "The state as a uint8 tensor."},
    {"set_state", generator_set_state, METH_O, "Takes a state that get_state() gave."},
    {"clone_state", generator_clone_state, METH_NOARGS,
     R"(A generator that goes on as this one would.

>>> g = arete.Generator().manual_seed(7)
>>> h = g.clone_state()
>>> bool((arete.rand(3, generator=g) == arete.rand(3, generator=h)).all())
True
)"},
    {nullptr, nullptr, 0, nullptr}};
PyGetSetDef generator_getset[] = {{"device", generator_device, nullptr, nullptr, nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot generator_slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(generator_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(generator_dealloc)},
    {Py_tp_methods, generator_methods},
    {Py_tp_getset, generator_getset},
    {Py_tp_doc, const_cast<char*>(R"(A stream of random numbers; the same on every device.

>>> g = arete.Generator().manual_seed(7)
>>> bool((arete.rand(3, generator=g) == arete.rand(3, generator=g.manual_seed(7))).all())
True
)")},
    {0, nullptr}};
PyType_Spec generator_spec{"arete.Generator", sizeof(GeneratorObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, generator_slots};

// The thread's state holds the generator for as long as the thread may draw from it.
PyObject* set_thread_generator_of(PyObject*, PyObject* g) {
  return guarded([&]() -> PyObject* {
    static const char* const key = "arete.thread_generator";
    if (g != Py_None && (!PyObject_TypeCheck(g, generator_type) || !object_in(g)->own))
      type_error("_set_thread_generator expected a Generator other than the default one, or None");
    PyObject* const state = PyThreadState_GetDict();
    if (!state) throw PythonError{};
    PyObject* const held = PyDict_GetItemString(state, key);
    PyObject* const before = Py_NewRef(held ? held : Py_None);
    if (PyDict_SetItemString(state, key, g) < 0) {
      Py_DECREF(before);
      throw PythonError{};
    }
    set_thread_generator(g == Py_None ? nullptr : object_in(g)->own);
    return before;
  });
}
PyMethodDef thread_functions[] = {
    {"_set_thread_generator", set_thread_generator_of, METH_O,
     "Makes a Generator, or with None the program's, the default one of this thread, and gives "
     "the one before."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

bool init_generator_type(PyObject* module) {
  generator_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&generator_spec));
  if (!generator_type ||
      PyModule_AddObjectRef(module, "Generator", reinterpret_cast<PyObject*>(generator_type)) < 0)
    return false;
  PyObject* g = generator_type->tp_alloc(generator_type, 0);
  if (!g) return false;
  return PyModule_AddObject(module, "default_generator", g) == 0 &&
         PyModule_AddFunctions(module, thread_functions) == 0;
}

Generator* to_generator(PyObject* o) {
  return PyObject_TypeCheck(o, generator_type) ? generator_in(o) : nullptr;
}

}  // namespace arete::python
