// Calls of compiled functions without running them.
#include "skip.h"

#include <algorithm>
#include <optional>

#include "arete/optim/optimizer.h"
#include "bindings.h"
#include "caster.h"
#include "skip_observation.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

// Note [Skipped functions]
// Python of a compiled function need not run where it is known what it would do. arete/_skip.py
// shows that for some functions: it watches a few calls, and finds all that their Python may have
// read. What can be watched for writes is (Watches: dicts, classes, functions); the rest (cells,
// lists, tensors, arguments) is compared before each call. An Observation is what such a call did:
// which calls it put off (Note [Calls put off again]), which gradients these made, which optimizers
// stepped after them, and what it returned. If two observations agree, and nothing was written or
// differs, a Skip does the same: it puts the calls off again, hands out the gradients, lets the
// optimizers make their steps (which are not repeated but made: counts, settings and state are read
// as they are), and gives new tensors. What cannot be done exactly so is refused, with the reason.
//
// A result with history, after a backward pass through it, has a node without saved tensors: all
// such results of skipped calls have the node of the last call that ran.

namespace skip {
namespace {

/// Does what an observed call did.
class Skip {
 public:
  Skip(const ProgramObject& program, nb::object watches, nb::object observation)
      : program_(program.program),
        its_watches_(std::move(watches)),
        its_observation_(std::move(observation)),
        watches_(nb::cast<const Watches&>(its_watches_)),
        seen_(nb::cast<const Observation&>(its_observation_)) {
    for (const Argument& a : seen_.arguments.all())
      if (a.kind == Kind::tensor) given_.push_back(&a);
  }
  Skip(const Skip&) = delete;
  Skip& operator=(const Skip&) = delete;

  /// Its result; NotImplemented: the function has to run.
  nb::object run(const nb::tuple& args, const nb::dict& kwargs) {
    std::vector<PyObject*> tensors;  // of the arguments
    if (count_ >= next_sample_ || !may_skip(args, kwargs, tensors))
      return nb::borrow(Py_NotImplemented);
    for (const MadeTensor& t : seen_.made)
      for (const MadeTensor* its = &t; its; its = its->base.get())
        if (its->node && its->node->hooks) return nb::borrow(Py_NotImplemented);
    // What comes now a call that follows would do first, too.
    for (const HostPart& part : seen_.before) forget_gradients(part.params);
    for (const auto& [k, made] : seen_.grads)
      if (grad_of(tensor_of(watches_.tensors()[k].object))) return nb::borrow(Py_NotImplemented);
    ++count_;
    compile::note_skipped(*program_);
    return nb::steal(make(tensors));
  }
  bool is_sample_due() const { return count_ >= next_sample_; }
  /// Whether a call that ran did what a skipped one would have done: then on with it.
  bool agrees(const Observation& o) {
    // Now and then, and less and less often.
    interval_ = std::min<int64_t>(2 * interval_, kMostSkipped);
    next_sample_ = count_ + interval_;
    return seen_.agrees(o);
  }

 private:
  static constexpr int64_t kFirstSkipped = 64, kMostSkipped = 4096;

  static void forget_gradients(const std::vector<PyObject*>& params) {
    for (PyObject* p : params) tensor_of(p).set_grad(Tensor());
  }

  bool may_skip(const nb::tuple& args, const nb::dict& kwargs,
                std::vector<PyObject*>& tensors) const {
    if (!Surroundings::are_plain() || !seen_.surroundings.are_same() || is_traced() ||
        !watches_.is_unchanged() || !seen_.arguments.fit(args.ptr(), kwargs.ptr(), tensors))
      return false;
    // It may have asked who has a gradient.
    const size_t known = watches_.tensors().size();
    for (size_t k = 0; k < seen_.has_grad.size(); ++k)
      if (bool(grad_of(tensor_of(k < known ? watches_.tensors()[k].object : tensors[k - known]))) !=
          seen_.has_grad[k])
        return false;
    // What shares memory did not when it was seen: the calls name it once.
    if (!watches_.are_apart(tensors)) return false;
    std::optional<Device> asked;  // usually all are of one device
    for (const compile::PutOffCalls::Memory& m : seen_.calls.memory) {
      if (m.device.is_cpu() || m.device == asked) continue;
      if (prim::backend_for(m.device).is_capturing()) return false;
      asked = m.device;
    }
    return true;
  }

  PyObject* make(const std::vector<PyObject*>& tensors) {
    compile::PutOff put_off(*program_);
    std::vector<Tensor> made;
    {
      std::vector<StoragePtr> memory;
      std::vector<int64_t> origins;
      memory.reserve(seen_.sources.size());
      origins.reserve(seen_.sources.size());
      for (size_t b = 0; b < seen_.sources.size(); ++b) {
        const compile::PutOffCalls::Memory& its = seen_.calls.memory[b];
        const int source = seen_.sources[b];
        if (source == Observation::kTemporary) {
          memory.emplace_back();
          origins.push_back(its.origin);
        } else if (source == Observation::kNew) {
          memory.push_back(compile::new_promise(its.bytes, its.device));
          origins.push_back(its.origin);
        } else if (source < 0) {
          memory.push_back(tensor_of(watches_.tensors()[size_t(~source)].object).storage());
          origins.push_back(its.origin);
        } else {
          const Tensor& t = tensor_of(tensors[size_t(source)]);
          const Argument& was = *given_[size_t(source)];
          memory.push_back(t.storage());
          origins.push_back(its.origin +
                            (t.layout().offset - was.layout.offset) * int64_t(size_of(was.dtype)));
        }
      }
      compile::put_off_again(seen_.calls, memory, origins);
      for (const MadeTensor& t : seen_.made) made.push_back(t.make(memory[t.memory]));
      for (const auto& [k, t] : seen_.grads)
        tensor_of(watches_.tensors()[k].object).set_grad(t.make(memory[t.memory]));
    }
    for (const HostPart& part : seen_.after)
      if (part.stepper)
        part.stepper->step_again(part.optimizer);
      else
        forget_gradients(part.params);
    std::vector<Ref> objects;
    for (Tensor& t : made) objects.emplace_back(checked(wrap(std::move(t))));
    made.clear();
    Ref result(checked(returned(seen_.returned, objects, tensors)));
    objects.clear();
    const ReleasedGil free;
    put_off.finish();
    return result.release();
  }

  // Nothing of it asks where the program is.
  struct ReleasedGil {
    PyThreadState* state = PyEval_SaveThread();
    ~ReleasedGil() { PyEval_RestoreThread(state); }
  };

  static PyObject* returned(const Returned& r, const std::vector<Ref>& objects,
                            const std::vector<PyObject*>& tensors) {
    switch (r.kind) {
      case Kind::tensor:
        return Py_NewRef(r.is_argument ? tensors[r.number] : objects[r.number].get());
      case Kind::tuple:
      case Kind::list: {
        const auto n = Py_ssize_t(r.items.size());
        Ref all(checked(r.kind == Kind::tuple ? PyTuple_New(n) : PyList_New(n)));
        for (Py_ssize_t k = 0; k < n; ++k) {
          PyObject* const item = checked(returned(r.items[size_t(k)], objects, tensors));
          if (r.kind == Kind::tuple)
            PyTuple_SET_ITEM(all.get(), k, item);
          else
            PyList_SET_ITEM(all.get(), k, item);
        }
        return all.release();
      }
      case Kind::dict: {
        Ref all(checked(PyDict_New()));
        for (size_t k = 0; k < r.items.size(); k += 2) {
          const Ref key(checked(returned(r.items[k], objects, tensors))),
              value(checked(returned(r.items[k + 1], objects, tensors)));
          if (PyDict_SetItem(all.get(), key.get(), value.get()) < 0) throw PythonError{};
        }
        return all.release();
      }
      default:
        return Py_NewRef(r.constant.get());
    }
  }

  std::shared_ptr<compile::Program> program_;
  nb::object its_watches_, its_observation_;
  const Watches& watches_;
  const Observation& seen_;
  std::vector<const Argument*> given_;  // tensors
  int64_t count_ = 0, interval_ = kFirstSkipped, next_sample_ = kFirstSkipped;
};

}  // namespace
}  // namespace skip

void bind_skip(nb::module_& m) {
  using namespace skip;
  m.attr("_can_skip") = kCanWatch;
  m.def("_start_watching", &start_watching);
  nb::class_<Watches>(m, "_Watches")
      .def(nb::init<>())
      .def("dict", &Watches::dict, "dict"_a, "names"_a.none(), "text"_a)
      .def("type", &Watches::type)
      .def("function", &Watches::function)
      .def("cell", &Watches::cell)
      .def("list", &Watches::list)
      .def("instance", &Watches::instance)
      .def("tensor", &Watches::tensor)
      .def("is_unchanged", &Watches::is_unchanged)
      .def("are_apart",
           [](const Watches& w, const Arguments& a, const nb::tuple& args, const nb::dict& kwargs) {
             std::vector<PyObject*> tensors;
             return a.fit(args.ptr(), kwargs.ptr(), tensors) && w.are_apart(tensors);
           })
      .def("what", &Watches::what);
  nb::class_<Observation>(m, "_Observation")
      .def("agrees", &Observation::agrees)
      .def("fits",
           [](const Observation& o, const nb::tuple& args, const nb::dict& kwargs) {
             std::vector<PyObject*> tensors;
             return o.arguments.fit(args.ptr(), kwargs.ptr(), tensors);
           })
      .def("take_objects", &Observation::take_objects);
  nb::class_<Arguments>(m, "_Arguments")
      .def("__init__", [](Arguments* a, const nb::tuple& args,
                          const nb::dict& kwargs) { new (a) Arguments(args.ptr(), kwargs.ptr()); })
      .def("fit",
           [](const Arguments& a, const nb::tuple& args, const nb::dict& kwargs) {
             std::vector<PyObject*> tensors;
             return a.fit(args.ptr(), kwargs.ptr(), tensors);
           })
      .def("why", &Arguments::why)
      .def("objects",
           [](const Arguments& a) {
             nb::list all;
             for (PyObject* p : a.objects()) all.append(nb::handle(p));
             return all;
           })
      .def("classes", [](const Arguments& a) {
        nb::list all;
        for (const Argument& x : a.all())
          if (x.type) all.append(nb::handle(reinterpret_cast<PyObject*>(x.type)));
        return all;
      });
  nb::class_<Skip>(m, "_Skip")
      .def(nb::init<const ProgramObject&, nb::object, nb::object>())
      .def("run", &Skip::run)
      .def("agrees", &Skip::agrees)
      .def("is_sample_due", &Skip::is_sample_due);
  m.def("_observe", &observe);
  m.def("_note_skipping", [](const ProgramObject& p, std::string text) {
    compile::note_skipping(*p.program, std::move(text));
  });
}

}  // namespace arete::python
