// Process groups and their stores, behind arete.distributed.
#include "arete/distributed/distributed.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/chrono.h>
#include <nanobind/stl/shared_ptr.h>

#include "arete/distributed/environment.h"
#include "arete/distributed/tcp_store.h"
#include "arete/prim/recorder.h"
#include "bindings.h"
#include "caster.h"
#include "convert.h"
#include "data_parallel.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

void bind_distributed_monitor(nb::module_& m);  // distributed_monitor.cpp

namespace {

namespace d = arete::distributed;
using Released = nb::call_guard<WithoutGil>;
using std::chrono::duration_cast;
// As timedelta has it.
using Time = std::chrono::microseconds;

d::Milliseconds milliseconds(Time t) { return std::chrono::ceil<d::Milliseconds>(t); }
std::optional<d::Milliseconds> milliseconds(std::optional<Time> t) {
  return t ? std::optional(milliseconds(*t)) : std::nullopt;
}

nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

// str or bytes.
std::string text_of(nb::handle o) {
  if (nb::isinstance<nb::bytes>(o)) {
    const auto bytes = nb::borrow<nb::bytes>(o);
    return {static_cast<const char*>(bytes.data()), bytes.size()};
  }
  return nb::cast<std::string>(o);
}

std::vector<std::string> texts_of(const std::vector<nb::object>& list) {
  std::vector<std::string> texts;
  for (const nb::object& o : list) texts.push_back(text_of(o));
  return texts;
}

// Runs `f` while other threads of Python go on.
template <class F>
auto released(F&& f) {
  const WithoutGil release;
  return f();
}
// The same of what waits for other processes, which may wait for calls that this one has put off.
template <class F>
auto released_to_wait(F&& f) {
  const WithoutGil release;
  if (prim::Capture* const capture = prim::putting_off()) capture->make_calls_for("Store");
  return f();
}

// Waits for a call, but answers signals meanwhile.
void wait_for(d::Work& work, std::optional<d::Milliseconds> timeout) {
  if (work.is_for_stream() && !timeout) return released([&] { work.wait(); });
  constexpr d::Milliseconds kSlice(100);
  auto left = timeout;
  while (!left || *left > kSlice) {
    if (released([&] { return work.wait_done(kSlice); })) break;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (left) *left -= kSlice;
  }
  released([&] {
    if (left && !work.wait_done(*left)) d::Work::throw_late(*timeout);
    work.wait();
  });
}

// A group for Python. It may end in a deallocation, and threads that it waits for may need the GIL
// to release their tensors.
d::ProcessGroupPtr ended_without_gil(d::ProcessGroupPtr group) {
  d::ProcessGroup* const p = group.get();
  if (!p) return nullptr;
  return {p, [group = std::move(group)](d::ProcessGroup*) mutable {
            if (!PyGILState_Check()) return group.reset();
            const nb::gil_scoped_release release;
            group.reset();
          }};
}

void bind_stores(nb::module_& m) {
  nb::class_<d::Store>(m, "Store", "Keys and values that processes share; values are bytes.")
      .def(
          "set",
          [](d::Store& s, const std::string& key, nb::handle value) {
            const std::string text = text_of(value);
            released([&] { s.set(key, text); });
          },
          "key"_a, "value"_a, "Sets the value of a key, a str or bytes.")
      .def(
          "get",
          [](d::Store& s, const std::string& key) {
            return bytes_of(released_to_wait([&] { return s.get(key); }));
          },
          "key"_a, "The value of a key, once it is there.")
      .def("add", &d::Store::add, "key"_a, "amount"_a, Released(),
           "Adds to a number, 0 where there is none, and gives the sum.")
      .def(
          "compare_set",
          [](d::Store& s, const std::string& key, nb::handle expected, nb::handle desired) {
            const std::string old = text_of(expected), fresh = text_of(desired);
            return bytes_of(released([&] { return s.compare_set(key, old, fresh); }));
          },
          "key"_a, "expected_value"_a, "desired_value"_a,
          "Sets a value if it is the expected one, or if there is none and none is expected.")
      .def(
          "check", [](d::Store& s, const std::vector<std::string>& keys) { return s.check(keys); },
          "keys"_a, Released(), "Whether all of them are there.")
      .def(
          "wait",
          [](d::Store& s, const std::vector<std::string>& keys, std::optional<Time> timeout) {
            released_to_wait([&] { s.wait(keys, milliseconds(timeout)); });
          },
          "keys"_a, "timeout"_a = nb::none(), "Waits until all of them are there.")
      .def("delete_key", &d::Store::delete_key, "key"_a, Released(), "Whether there was one.")
      .def("num_keys", &d::Store::num_keys, Released(), "How many keys there are.")
      .def(
          "append",
          [](d::Store& s, const std::string& key, nb::handle value) {
            const std::string text = text_of(value);
            released([&] { s.append(key, text); });
          },
          "key"_a, "value"_a, "Puts a value behind the one that is there.")
      .def(
          "multi_get",
          [](d::Store& s, const std::vector<std::string>& keys) {
            std::vector<nb::bytes> values;
            for (const std::string& v : released_to_wait([&] { return s.multi_get(keys); }))
              values.push_back(bytes_of(v));
            return values;
          },
          "keys"_a, "The values of keys, once all are there.")
      .def(
          "multi_set",
          [](d::Store& s, const std::vector<std::string>& keys,
             const std::vector<nb::object>& values) {
            const std::vector<std::string> texts = texts_of(values);
            released([&] { s.multi_set(keys, texts); });
          },
          "keys"_a, "values"_a, "Sets several values.")
      .def(
          "queue_push",
          [](d::Store& s, const std::string& key, nb::handle value) {
            const std::string text = text_of(value);
            released([&] { s.queue_push(key, text); });
          },
          "key"_a, "value"_a, "Puts a value at the end of a queue.")
      .def(
          "queue_pop",
          [](d::Store& s, const std::string& key, bool block) {
            return bytes_of(released_to_wait([&] { return s.queue_pop(key, block); }));
          },
          "key"_a, "block"_a = true,
          "Takes the first value of a queue, once there is one; without `block` QueueEmptyError if "
          "there is none.")
      .def("queue_len", &d::Store::queue_len, "key"_a, Released(), "How many are in a queue.")
      .def("list_keys", &d::Store::list_keys, Released(), "All keys.")
      .def("has_extended_api", [](const d::Store&) { return true; })
      .def(
          "set_timeout", [](d::Store& s, Time t) { s.set_timeout(milliseconds(t)); }, "timeout"_a,
          "How long get() and wait() wait.")
      .def_prop_ro("timeout", [](const d::Store& s) { return Time(s.timeout()); });
  nb::class_<d::HashStore, d::Store>(m, "HashStore", "For the threads of this process.")
      .def(nb::init<>());
  nb::class_<d::FileStore, d::Store>(m, "FileStore",
                                     "In a file; the last of world_size stores removes it.")
      .def(nb::init<std::string, int>(), "file_name"_a, "world_size"_a = -1, Released())
      .def_prop_ro("path", &d::FileStore::path);
  nb::class_<d::TCPStore, d::Store>(
      m, "TCPStore", "Behind a port of the process with is_master; speaks with PyTorch's.")
      .def(
          "__init__",
          [](d::TCPStore* self, const std::string& host, uint16_t port,
             std::optional<int> world_size, bool is_master, Time timeout, bool wait_for_workers,
             bool multi_tenant, std::optional<int> master_listen_fd, bool) {
            ARETE_CHECK(!master_listen_fd,
                        NotImplementedError("TCPStore", "master_listen_fd is not supported"));
            const nb::gil_scoped_release release;
            new (self) d::TCPStore(host, {.port = port,
                                          .is_server = is_master,
                                          .world_size = world_size,
                                          .timeout = milliseconds(timeout),
                                          .wait_for_workers = wait_for_workers,
                                          .multi_tenant = multi_tenant});
          },
          "host_name"_a, "port"_a, "world_size"_a = nb::none(), "is_master"_a = false,
          "timeout"_a = Time(std::chrono::minutes(5)), "wait_for_workers"_a = true,
          "multi_tenant"_a = false, "master_listen_fd"_a = nb::none(), "use_libuv"_a = true)
      .def_prop_ro("host", &d::TCPStore::host)
      .def_prop_ro("port", &d::TCPStore::port);
  nb::class_<d::PrefixStore, d::Store>(m, "PrefixStore", "A store, seen through a prefix of keys.")
      .def(nb::init<std::string, d::StorePtr>(), "prefix"_a, "store"_a)
      .def_prop_ro("underlying_store", &d::PrefixStore::underlying_store);
}

void bind_groups(nb::module_& m) {
  nb::class_<d::ReduceOp>(m, "ReduceOp", "How elements of several processes become one.")
      .def(
          "__init__",
          [](d::ReduceOp* self, int kind, double factor) {
            constexpr int last = int(prim::ReduceKind::premul_sum);
            ARETE_CHECK(kind >= 0 && kind <= last, ValueError("ReduceOp", "there is no such kind")
                                                       .expected("0 to " + std::to_string(last))
                                                       .got(std::to_string(kind)));
            new (self) d::ReduceOp(prim::ReduceKind(kind), factor);
          },
          "kind"_a, "factor"_a = 1.0)
      .def_prop_ro("_kind", [](const d::ReduceOp& op) { return int(op.kind); })
      .def_prop_ro("_factor", [](const d::ReduceOp& op) { return op.factor; })
      .def("__eq__",
           [](const d::ReduceOp& a, nb::handle b) {
             const d::ReduceOp* other;
             return nb::try_cast(b, other) && other && a.kind == other->kind &&
                    a.factor == other->factor;
           })
      .def("__hash__", [](const d::ReduceOp& op) { return int(op.kind); })
      .def("__reduce__",
           [](nb::handle self) {
             const auto& op = nb::cast<const d::ReduceOp&>(self);
             return nb::make_tuple(self.type(), nb::make_tuple(int(op.kind), op.factor));
           })
      .def("__repr__", [](const d::ReduceOp& op) {
        constexpr int of_torch[] = {0, 2, 3, 4, 5, 6, 7, 1, 8};  // as its enumeration counts
        return std::string("<RedOpType.") + name_of(op.kind) + ": " +
               std::to_string(of_torch[int(op.kind)]) + ">";
      });

  nb::class_<d::Work>(m, "Work", nb::dynamic_attr(), "A call that may be under way.")
      .def(
          "wait",
          [](d::Work& w, std::optional<Time> timeout) {
            wait_for(w, timeout && timeout->count() > 0 ? milliseconds(timeout) : std::nullopt);
            return true;
          },
          "timeout"_a = nb::none(), "Until it is done; raises what went wrong.")
      .def("is_completed", &d::Work::is_completed, "Whether it is done.")
      .def("is_success", [](const d::Work& w) { return w.is_completed() && !w.exception(); })
      .def("exception",
           [](const d::Work& w) -> nb::object {
             const std::exception_ptr error = w.exception();
             if (!error) return nb::none();
             try {
               std::rethrow_exception(error);
             } catch (...) {
               set_python_error();
             }
             nb::python_error raised;
             return nb::borrow(raised.value());
           })
      .def("source_rank", &d::Work::source_rank)
      .def("_source_rank", &d::Work::source_rank);

  using Group = d::ProcessGroup;
  nb::class_<Group>(m, "ProcessGroup", "One process' part of a group of them.")
      .def("rank", &Group::rank, "Of this process in the group.")
      .def("size", &Group::size, "How many processes there are.")
      .def("name", &Group::name)
      .def_prop_ro("group_name", &Group::name)
      .def_prop_ro("_ranks", &Group::ranks)
      .def_prop_ro("_backend", &Group::backend)
      .def_prop_ro("_home", &Group::home)
      .def_prop_ro("_number", &Group::number)
      .def("_connect", &Group::connect, Released())
      .def("_recorded_calls", &Group::recorded_calls)
      .def_prop_ro("_store", &Group::store)
      .def_prop_ro("_timeout", [](const Group& g) { return Time(g.timeout()); })
      .def("_set_timeout", [](Group& g, Time t) { g.set_timeout(milliseconds(t)); })
      .def("_all_reduce", &Group::all_reduce, Released())
      .def("_reduce", &Group::reduce, Released())
      .def("_broadcast", &Group::broadcast, Released())
      .def("_all_gather", &Group::all_gather, Released())
      .def("_all_gather_into_tensor", &Group::all_gather_into_tensor, Released())
      .def("_reduce_scatter", &Group::reduce_scatter, Released())
      .def("_reduce_scatter_tensor", &Group::reduce_scatter_tensor, Released())
      .def("_all_to_all", &Group::all_to_all, Released())
      .def("_all_to_all_single", &Group::all_to_all_single, Released())
      .def("_gather", &Group::gather, Released())
      .def("_scatter", &Group::scatter, Released())
      .def("_barrier", &Group::barrier, Released())
      .def(
          "_monitored_barrier",
          [](Group& g, std::optional<Time> timeout, bool wait_all_ranks) {
            g.monitored_barrier(milliseconds(timeout), wait_all_ranks);
          },
          nb::arg().none(), nb::arg(), Released())
      .def("_send", &Group::send, Released())
      .def(
          "_recv",
          [](Group& g, const Tensor& t, int src, uint32_t tag) {
            int source = -1;
            g.recv(t, src, tag, false, &source);
            return source;
          },
          Released())
      .def(
          "_irecv",
          [](Group& g, const Tensor& t, int src, uint32_t tag) {
            return g.recv(t, src, tag, true);
          },
          Released())
      .def(
          "_start_messages",
          [](Group& g, const std::vector<std::tuple<Tensor, int, uint32_t, bool>>& list) {
            std::vector<Group::Message> messages;
            for (const auto& [tensor, peer, tag, sends] : list)
              messages.push_back({tensor, peer, tag, sends});
            return g.start_messages(messages);
          },
          Released());

  m.def(
      "init_process_group",
      [](const std::string& backend, const std::string& init_method, std::optional<Time> timeout,
         int world_size, int rank, d::StorePtr store, std::optional<Device> device) {
        d::InitOptions options{.backend = backend,
                               .init_method = init_method,
                               .rank = rank,
                               .world_size = world_size,
                               .store = std::move(store),
                               .device = device};
        if (timeout) options.timeout = milliseconds(*timeout);
        return ended_without_gil(d::init_process_group(options));
      },
      nb::arg(), nb::arg(), nb::arg().none(), nb::arg(), nb::arg(), nb::arg().none(),
      nb::arg().none(), Released());
  m.def("destroy_process_group", &d::destroy_process_group, "group"_a.none(), "why"_a = "",
        "failed"_a = false, Released());
  m.def(
      "new_group",
      [](const std::vector<int>& ranks, std::optional<Time> timeout, const std::string& backend,
         std::optional<Device> device, bool among_members) {
        return ended_without_gil(
            d::new_group(ranks, milliseconds(timeout), backend, device, among_members));
      },
      nb::arg(), nb::arg().none(), nb::arg(), nb::arg().none(), nb::arg(), Released());
  m.def("is_initialized", &d::is_initialized);
  m.def("group_count", &d::group_count);
  m.def("is_gloo_available", &d::is_gloo_available);
  m.def("is_nccl_available", &d::is_nccl_available, Released());
  m.def("nccl_version", &d::nccl_version, Released());
  m.def("world", [] { return ended_without_gil(d::world()); });
  m.def("get_group_rank", &d::get_group_rank);
  m.def("environment_local_rank", &d::environment_local_rank);
  m.def(
      "rendezvous",
      [](const std::string& url, int rank, int world_size, Time timeout) {
        d::Meeting meeting = d::rendezvous(url, rank, world_size, milliseconds(timeout));
        return std::tuple(std::move(meeting.store), meeting.rank, meeting.world_size);
      },
      Released());
  m.def("bytes_of", [](const Tensor& t) { return nb::bytes(t.data_ptr(), t.nbytes()); });
}

}  // namespace

void bind_distributed(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("_distributed");
  bind_stores(m);
  bind_groups(m);
  bind_data_parallel(m);
  bind_sharding(m);
  bind_checkpoint(m);
  bind_distributed_monitor(m);
  bind_pipeline(m);
}

}  // namespace arete::python
