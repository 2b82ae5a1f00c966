// Streams, events, graphs, memory of GPUs.
#include "arete/device/cuda.h"
#include "arete/core/sync_debug.h"
#include "arete/device/shared_memory.h"

#include "arete/core/matmul_precision.h"
#include "arete/ops/attention.h"
#include "arete/prim/cudnn_switches.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arete::python {

namespace {

/// A capture between __enter__ and __exit__.
struct Capture {
  cuda::Graph& graph;
  std::unique_ptr<cuda::GraphCapture> open;
};

/// Of MemPoolGuard, until leave().
struct PoolScope {
  explicit PoolScope(const cuda::MemPool& pool)
      : open(std::make_unique<cuda::MemPoolGuard>(pool)) {}
  std::unique_ptr<cuda::MemPoolGuard> open;
};

}  // namespace

void bind_cuda(nb::module_& m) {
  nb::module_ c = m.def_submodule("_cuda");
  c.def("is_available", &cuda::is_available);
  m.def("_get_accelerator",
        [] { return Device(cuda::is_available() ? DeviceType::cuda : DeviceType::cpu); });
  c.def("unavailable_reason", &cuda::unavailable_reason);
  c.def("is_initialized", &cuda::is_initialized);
  c.def("is_in_bad_fork", &cuda::is_in_bad_fork);
  c.def("init", &cuda::init);
  c.def("device_count", [] { return cuda::is_available() ? cuda::device_count() : 0; });
  c.def("current_device", &cuda::current_device);
  c.def("set_device", &cuda::set_device, "device"_a, "chooses"_a = false);
  c.def("has_chosen_device", &cuda::has_chosen_device);
  c.def("versions", &cuda::versions);
  c.def("can_device_access_peer", &cuda::can_device_access_peer);
  c.def("set_sync_debug_mode",
        [](int mode) { cuda::set_sync_debug_mode(cuda::SyncDebugMode(mode)); });
  c.def("get_sync_debug_mode", [] { return int(cuda::get_sync_debug_mode()); });
  c.def(
      "synchronize",
      [](int device) {
        const WithoutGil free;
        cuda::synchronize(device);
      },
      "device"_a = -1);
  c.def("memory_allocated", &cuda::memory_allocated, "device"_a = -1);
  c.def("max_memory_allocated", &cuda::max_memory_allocated, "device"_a = -1);
  c.def("memory_reserved", &cuda::memory_reserved, "device"_a = -1);
  c.def("max_memory_reserved", &cuda::max_memory_reserved, "device"_a = -1);
  c.def("reset_peak_memory_stats", &cuda::reset_peak_memory_stats, "device"_a = -1);
  c.def("reset_accumulated_memory_stats", &cuda::reset_accumulated_memory_stats, "device"_a = -1);
  c.def("memory_stats", &cuda::memory_stats_by_name, "device"_a = -1);
  c.def("memory_summary", &cuda::memory_summary, "device"_a, "abbreviated"_a);
  c.def("empty_cache", &cuda::empty_cache);
  c.def("set_per_process_memory_fraction", &cuda::set_per_process_memory_fraction, "fraction"_a,
        "device"_a = -1);
  c.def(
      "mem_get_info",
      [](int device) {
        const MemoryInfo i = cuda::mem_get_info(device);
        return std::pair(i.free, i.total);
      },
      "device"_a = -1);
  c.def("is_current_stream_capturing", &cuda::is_current_stream_capturing);
  c.def(
      "properties",
      [](int device) {
        const DeviceProperties p = cuda::get_device_properties(device);
        nb::dict d;
        d["name"] = p.name;
        d["major"] = p.major;
        d["minor"] = p.minor;
        d["total_memory"] = p.total_memory;
        d["multi_processor_count"] = p.multi_processor_count;
        return d;
      },
      "device"_a = -1);
  c.def(
      "pci_bus_id", [](int device) { return cuda::get_device_properties(device).pci_bus_id; },
      "device"_a = -1);
  c.def("range_push", [](const std::string& s) { cuda::nvtx::range_push(s.c_str()); });
  c.def("range_pop", [] { cuda::nvtx::range_pop(); });
  c.def("mark", [](const std::string& s) { cuda::nvtx::mark(s.c_str()); });
  c.def("range_start", [](const std::string& s) { return cuda::nvtx::range_start(s.c_str()); });
  c.def("range_end", [](uint64_t range) { cuda::nvtx::range_end(range); });

  nb::class_<cuda::Event>(c, "Event")
      .def(nb::init<bool, bool>(), "enable_timing"_a = false, "interprocess"_a = false)
      .def_static(
          "from_ipc_handle",
          [](int device, nb::bytes handle) {
            return cuda::Event::from_ipc_handle(std::string(handle.c_str(), handle.size()), device);
          },
          "device"_a, "handle"_a)
      .def("ipc_handle",
           [](const cuda::Event& e) {
             const std::string handle = e.ipc_handle();
             return nb::bytes(handle.data(), handle.size());
           })
      .def(
          "record",
          [](cuda::Event& e, std::optional<cuda::Stream> s) { s ? e.record(*s) : e.record(); },
          "stream"_a = nb::none())
      .def(
          "wait",
          [](const cuda::Event& e, std::optional<cuda::Stream> s) {
            e.wait(s ? *s : cuda::current_stream());
          },
          "stream"_a = nb::none())
      .def("query", &cuda::Event::query)
      .def("synchronize",
           [](const cuda::Event& e) {
             const WithoutGil free;
             e.synchronize();
           })
      .def("elapsed_time", &cuda::Event::elapsed_time, "end_event"_a)
      .def_prop_ro("_device_index", &cuda::Event::device)
      .def_prop_ro("cuda_event", [](const cuda::Event& e) { return uintptr_t(e.native_handle()); });
  nb::class_<cuda::Stream>(c, "Stream")
      .def(
          "__init__",
          [](cuda::Stream* s, int priority, int device) { new (s) cuda::Stream(priority, device); },
          "priority"_a = 0, "device"_a = -1)
      .def_static(
          "from_native",
          [](uintptr_t p, int device) {
            return cuda::Stream::from_native(reinterpret_cast<void*>(p), device);
          },
          "stream"_a, "device"_a = -1)
      .def_prop_ro("_device_index", &cuda::Stream::device)
      .def_prop_ro("priority", &cuda::Stream::priority)
      .def_prop_ro("cuda_stream",
                   [](const cuda::Stream& s) { return uintptr_t(s.native_handle()); })
      .def("query", &cuda::Stream::query)
      .def("synchronize",
           [](const cuda::Stream& s) {
             const WithoutGil free;
             s.synchronize();
           })
      .def("wait_event", &cuda::Stream::wait_event)
      .def("wait_stream", &cuda::Stream::wait_stream)
      .def("__eq__", [](const cuda::Stream& a, const cuda::Stream& b) { return a == b; })
      .def("__hash__", [](const cuda::Stream& s) { return uintptr_t(s.native_handle()); });
  c.def("current_stream", &cuda::current_stream, "device"_a = -1);
  c.def("default_stream", &cuda::default_stream, "device"_a = -1);
  c.def("set_stream", &cuda::set_stream);

  nb::class_<cuda::MemPool>(c, "MemPool")
      .def(nb::init<int, bool>(), "device"_a = -1, "use_on_oom"_a = false)
      .def_prop_ro("device", &cuda::MemPool::device)
      .def_prop_ro("id", &cuda::MemPool::id)
      .def("use_count", &cuda::MemPool::use_count)
      // (address, bytes, stream, expandable, blocks of (address, bytes, state))
      .def("snapshot", [](const cuda::MemPool& pool) {
        nb::list all;
        for (const prim::PoolSegment& s : pool.snapshot()) {
          nb::list blocks;
          for (const auto& b : s.blocks)
            blocks.append(nb::make_tuple(b.address, b.bytes, int(b.state)));
          all.append(nb::make_tuple(s.address, s.bytes, uintptr_t(s.stream), s.expandable, blocks));
        }
        return all;
      });
  nb::class_<PoolScope>(c, "MemPoolScope")
      .def(nb::init<const cuda::MemPool&>())
      .def("leave", [](PoolScope& scope) { scope.open.reset(); });
  // (device, handle, offset, bytes, counter) of shared memory, and tensors over it.
  c.def("share_memory", [](const Tensor& t) {
    cuda::SharedMemory s;
    {
      const WithoutGil free;
      s = cuda::share_memory(t.storage());
    }
    return nb::make_tuple(s.device, nb::bytes(s.handle.data(), s.handle.size()), s.offset, s.bytes,
                          nb::bytes(s.counter.data(), s.counter.size()));
  });
  c.def("open_shared_memory", [](int device, nb::bytes handle, size_t memory_offset, size_t bytes,
                                 nb::bytes counter, DType dtype, const std::vector<int64_t>& sizes,
                                 const std::vector<int64_t>& strides, int64_t offset) {
    Layout layout(IntList(sizes.data(), sizes.size()), IntList(strides.data(), strides.size()),
                  offset);
    ARETE_CHECK(offset >= 0 && size_t(layout.end()) * size_of(dtype) <= bytes,
                ValueError("rebuild_cuda_tensor", "the tensor reaches beyond its memory"));
    StoragePtr storage =
        cuda::open_shared_memory({device, std::string(handle.c_str(), handle.size()), memory_offset,
                                  bytes, std::string(counter.c_str(), counter.size())});
    return Tensor(
        IntrusivePtr<TensorImpl>(new TensorImpl(std::move(storage), std::move(layout), dtype)));
  });
  c.def("ipc_collect", [] {
    const WithoutGil free;
    cuda::collect_shared_memory();
  });
  nb::class_<cuda::Graph>(c, "Graph")
      .def(nb::init<>())
      .def("replay", [](const cuda::Graph& g) { g.replay(); })
      .def("before_replay", &cuda::Graph::before_replay)
      .def("reset", &cuda::Graph::reset)
      .def_prop_ro("is_ready", &cuda::Graph::is_ready);
  nb::class_<Capture>(c, "Capture")
      .def(
          "__init__",
          [](Capture* p, cuda::Graph& g, const cuda::MemPool& pool,
             const std::optional<cuda::Stream>& s) {
            new (p) Capture{g, s ? std::make_unique<cuda::GraphCapture>(g, pool, *s)
                                 : std::make_unique<cuda::GraphCapture>(g, pool)};
          },
          "graph"_a, "pool"_a, "stream"_a = nb::none(), nb::keep_alive<1, 2>())
      .def("end",
           [](Capture& p) {
             p.open->end();
             p.open.reset();
           })
      .def("before_replay",
           [](Capture& p, std::function<void()> f) { p.open->before_replay(std::move(f)); })
      .def("abandon", [](Capture& p) { p.open.reset(); });

  bind_kernels(m);

  m.def("_matmul_precision", [](std::optional<std::string> p) {
    if (p) set_float32_matmul_precision(*p);
    return std::string(get_float32_matmul_precision());
  });
  m.def("_cudnn_enabled", [](std::optional<bool> on) {
    if (on) cuda::set_cudnn_enabled(*on);
    return cuda::cudnn_enabled();
  });
  m.def("_cudnn_deterministic", [](std::optional<bool> on) {
    if (on) cuda::set_cudnn_deterministic(*on);
    return cuda::cudnn_deterministic();
  });
  m.def("_cudnn_benchmark", [](std::optional<bool> on) {
    if (on) cuda::set_cudnn_benchmark(*on);
    return cuda::cudnn_benchmark();
  });
  m.def("_cudnn_benchmark_limit", [](std::optional<int> engines) {
    if (engines) cuda::set_cudnn_benchmark_limit(*engines);
    return cuda::cudnn_benchmark_limit();
  });
  m.def("_attention_backends", [](std::optional<std::array<bool, 4>> allowed) {
    if (allowed)
      set_attention_backends({(*allowed)[0], (*allowed)[1], (*allowed)[2], (*allowed)[3]});
    const AttentionBackends b = attention_backends();
    return std::array{b.flash, b.mem_efficient, b.cudnn, b.math};
  });
  // By the numbers of Float32Scope and Float32Precision: in force, and as set for the scope alone.
  m.def("_float32_precision",
        [](int scope) { return int(float32_precision(Float32Scope(scope))); });
  m.def("_float32_precision_setting",
        [](int scope) { return int(float32_precision_setting(Float32Scope(scope))); });
  m.def("_set_float32_precision", [](int scope, int precision) {
    set_float32_precision(Float32Scope(scope), Float32Precision(precision));
  });
}

}  // namespace arete::python
