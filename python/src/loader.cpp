// What stands behind arete.utils.data: makers of batches, the threads of loaders, the way of
// batches to a device.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "arete/base/thread_pool.h"
#include "arete/data/batch_feed.h"
#include "arete/data/sampler.h"
#include "arete/ops/creation.h"
#include "arete/profile/profiler.h"
#include "batch_maker.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

using data::BatchFeed;
using data::WorkerPool;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Generator& generator_in(nb::handle o) {
  Generator* const g = o.is_none() ? &default_generator() : to_generator(o.ptr());
  if (!g) throw nb::type_error("generator must be a Generator");
  return *g;
}

// Waits like a queue of Python's: what signals have to say is heard. `done(seconds)` waits so long
// for what is wanted. False after `timeout` seconds (0: never) in which the pool made nothing.
template <class Done>
bool wait_until(const WorkerPool& pool, double timeout, Done done) {
  if (done(0)) return true;  // mostly it is there: the interpreter's lock need not change hands
  double last = now();
  for (int64_t seen = pool.finished();;) {
    const double left = timeout > 0 ? last + timeout - now() : 1;
    if (left <= 0) return false;
    {
      const WithoutGil free;
      if (done(std::min(left, 0.1))) return true;
    }
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    if (const int64_t count = pool.finished(); count != seen) {
      seen = count;
      last = now();
    }
  }
}

// The index at which the making of a batch failed, of the latest exception that this thread got.
thread_local int64_t failed_example = -1;

std::vector<Tensor> given(data::Made made) {
  failed_example = made.example;
  if (made.error) std::rethrow_exception(made.error);
  return std::move(made.batch);
}

// Instead of a batch or its number.
constexpr int kLate = -1, kGone = -2;

// The number of a batch that is ready, kLate after `timeout` seconds without any batch, or kGone.
int64_t wait_for(const WorkerPool& pool, int64_t epoch, int64_t number, double timeout) {
  WorkerPool::State state = WorkerPool::State::pending;
  const auto done = [&](double seconds) {
    state = pool.wait(epoch, number, seconds);
    return state != WorkerPool::State::pending;
  };
  if (!wait_until(pool, timeout, done)) return kLate;
  return state == WorkerPool::State::ready ? number : kGone;
}

// A feed as a loop in Python asks for its batches.
struct Feed {
  WorkerPool& pool;
  const double timeout;
  BatchFeed feed;
  int64_t number = 0;  // of the latest batch

  Feed(WorkerPool& of, int64_t epoch, bool in_order, const data::CopyAhead& copies, int ahead,
       double seconds)
      : pool(of), timeout(seconds), feed(of, epoch, in_order, copies, ahead) {}
  ~Feed() { close(); }
  void close() {
    const WithoutGil free;
    feed.close();
  }

  // A list of tensors, 0 after the last one, kLate or kGone. Throws what making the batch threw.
  nb::object next() {
    const profile::RecordFunction span("enumerate(DataLoader)#BatchFeed.next");
    BatchFeed::State state = BatchFeed::State::pending;
    const auto done = [&](double seconds) {
      state = feed.wait(seconds);
      return state != BatchFeed::State::pending;
    };
    if (!wait_until(pool, timeout, done)) return nb::int_(kLate);
    if (state != BatchFeed::State::ready)
      return nb::int_(state == BatchFeed::State::gone ? kGone : 0);
    BatchFeed::Given batch = feed.take();
    number = batch.number;
    return nb::cast(given(std::move(batch.made)));
  }
};

// The indices of a batch; nothing if they are no list, tuple or tensor of integers.
std::optional<std::vector<int64_t>> plain_indices(nb::handle batch) {
  PyObject* const o = batch.ptr();
  if (is_tensor(o)) {
    const Tensor& t = tensor_of(o);
    if (t.dim() != 1 || t.numel() == 0 || t.dtype() != kInt64 || !t.device().is_cpu())
      return std::nullopt;
    return t.to_vector<int64_t>();
  }
  if (!PyList_CheckExact(o) && !PyTuple_CheckExact(o)) return std::nullopt;
  const Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  if (n == 0) return std::nullopt;
  std::vector<int64_t> indices(static_cast<size_t>(n));
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* const index = PySequence_Fast_GET_ITEM(o, i);
    if (is_tensor(index) && tensor_of(index).dim() > 0) return std::nullopt;
    if (!to_int(index, indices[size_t(i)])) return std::nullopt;
  }
  return indices;
}

// Python's indices from the end, counted from the beginning.
std::vector<int64_t> from_front(IntList indices, int64_t size) {
  std::vector<int64_t> result(indices.begin(), indices.end());
  for (int64_t& i : result)
    if (i < 0 && i >= -size) i += size;
  return result;
}

std::optional<Maker> subset(const Maker& base, nb::handle chosen) {
  auto indices = plain_indices(chosen);
  if (!indices) return std::nullopt;
  const auto size = int64_t(indices->size());
  return Maker{[make = base.make, all = std::move(*indices), size](IntList wanted,
                                                                   data::BatchContext& context) {
                 std::vector<int64_t> mapped = from_front(wanted, size);
                 for (int64_t& i : mapped) {
                   ARETE_CHECK(i >= 0 && i < size, IndexError("", "list index out of range"));
                   i = all[size_t(i)];
                 }
                 return make(mapped, context);
               },
               size};
}

void bind_orders(nb::module_& m) {
  m.def(
      "_random_seed", [](nb::handle g) { return data::random_seed(generator_in(g)); },
      "generator"_a.none());
  m.def(
      "_permutation",
      [](int64_t n, nb::handle generator) {
        Generator& g = generator_in(generator);
        const WithoutGil free;
        return tensor(data::permutation(n, g));
      },
      "n"_a, "generator"_a.none());
  m.def(
      "_weighted_order",
      [](const Tensor& weights, int64_t samples, nb::handle generator) {
        Generator& g = generator_in(generator);
        const WithoutGil free;
        return tensor(
            data::WeightedRandomSampler(weights.to_vector<double>(), samples).order(0, g));
      },
      "weights"_a, "samples"_a, "generator"_a.none());
  m.def("_generator_words", [](nb::handle generator) {
    const Generator::State state = generator_in(generator).state();
    return std::pair(state.seed, state.offset);
  });
  m.def("_set_generator_words", [](nb::handle generator, uint64_t seed, uint64_t offset) {
    generator_in(generator).set_state({seed, offset});
  });
  m.def("_seed_for_batch", [](nb::handle generator, uint64_t seed, int64_t number) {
    generator_in(generator).set_state(data::stream_of_batch(seed, number));
  });
}

void bind_pool(nb::module_& m) {
  nb::class_<WorkerPool>(m, "_WorkerPool")
      .def(
          "__init__",
          [](WorkerPool* self, int workers, bool own) {
            new (self)
                WorkerPool(workers, own ? WorkerPool::Threads::own : WorkerPool::Threads::given);
          },
          "workers"_a, "own_threads"_a = true)
      .def(
          "start",
          [](WorkerPool& p, const Maker* maker, uint64_t seed) {
            return p.start(maker ? maker->make : nullptr, seed);
          },
          "maker"_a.none(), "seed"_a)
      .def("waited",
           [](const WorkerPool& p) {  // a function that outlives the pool
             return nb::cpp_function([seconds = p.waited()] { return seconds->load(); });
           })
      .def("submit",
           [](WorkerPool& p, int worker, int64_t number, nb::handle batch) {
             auto indices = plain_indices(batch);
             if (indices) p.submit(worker, number, std::move(*indices));
             return indices.has_value();
           })
      .def("submit_number",
           [](WorkerPool& p, int worker, int64_t number) { p.submit(worker, number); })
      .def("submit_all",
           [](WorkerPool& p, const Tensor& order, int64_t size, int64_t ahead, int64_t first,
              std::vector<int64_t> without) {
             p.submit_all(order.to_vector<int64_t>(), size, ahead, first, std::move(without));
           })
      .def("wait", &wait_for)
      .def("take", [](WorkerPool& p, int64_t number) { return given(p.take(number)); })
      .def("next",
           [](WorkerPool& p, int worker) -> std::optional<std::pair<int64_t, int64_t>> {
             // A worker's thread, for as long as it lives: the cores belong to the training thread.
             static thread_local const SerialRegion serial;
             auto task = p.next(worker, false);
             if (!task) {
               const WithoutGil free;
               task = p.next(worker);
             }
             if (!task) return std::nullopt;
             return std::pair(task->epoch, task->number);
           })
      .def("finish",
           [](WorkerPool& p, int64_t epoch, int64_t number, std::vector<Tensor> tensors) {
             p.finish(epoch, number, {std::move(tensors), nullptr, -1});
           })
      .def("close", &WorkerPool::close, "seconds"_a, nb::call_guard<nb::gil_scoped_release>());
}

void bind_feed(nb::module_& m) {
  nb::class_<data::CopyAhead>(m, "_CopyAhead").def(nb::init<Device>());
  nb::class_<data::FeedWaits>(m, "_FeedWaits")
      .def(nb::init<>())
      .def_prop_ro("consumer_wait", [](const data::FeedWaits& w) { return w.consumer.load(); })
      .def_prop_ro("loader_wait", [](const data::FeedWaits& w) { return w.loader.load(); })
      .def_prop_ro("worker_wait", [](const data::FeedWaits& w) { return w.worker.load(); });
  nb::class_<Feed>(m, "_BatchFeed", nb::is_weak_referenceable())
      .def(nb::init<WorkerPool&, int64_t, bool, const data::CopyAhead&, int, double>(),
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 5>())
      .def("add", [](Feed& f, const std::vector<int64_t>& numbers,
                     bool last) { f.feed.add(numbers, last); })
      .def("next", &Feed::next)
      .def("close", &Feed::close)
      .def_ro("number", &Feed::number)
      .def_prop_ro("waits", [](const Feed& f) { return f.feed.waits(); });
}

}  // namespace

Maker maker_of(const data::DatasetPtr& dataset, data::Transform transform, bool pinned) {
  return {[make = data::batch_maker(dataset, std::move(transform), nullptr, pinned),
           size = dataset->size()](IntList indices, data::BatchContext& context) {
            return make(from_front(indices, size), context);
          },
          dataset->size()};
}

void bind_loader(nb::module_& m) {
  nb::class_<Maker>(m, "_BatchMaker")
      .def("__call__",
           [](const Maker& maker, nb::handle batch) -> std::optional<std::vector<Tensor>> {
             const auto indices = plain_indices(batch);
             if (!indices) return std::nullopt;
             const WithoutGil free;
             return given(
                 data::try_to_make(maker.make, *indices, default_generator(), data::one_by_one));
           })
      .def("subset", &subset);
  m.def("_row_maker", [](std::vector<Tensor> tensors, bool pinned) {
    return maker_of(std::make_shared<data::TensorDataset>(std::move(tensors)), nullptr, pinned);
  });
  m.def("_failed_example", [] { return failed_example; });
  bind_orders(m);
  bind_pool(m);
  bind_feed(m);
}

}  // namespace arete::python
