#include "arete/backend/cpu/onednn.h"

#include <omp.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

namespace arete::cpu::onednn {

using dnnl::memory;

std::string version() {
  const dnnl_version_t* v = dnnl_version();
  return "oneDNN " + std::to_string(v->major) + "." + std::to_string(v->minor) + "." +
         std::to_string(v->patch);
}

const dnnl::engine& engine() {
  // Never destroyed: plans of other static objects may outlive this file's.
  static const dnnl::engine* const e = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *e;
}

dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

memory::data_type to_dnnl(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return memory::data_type::f32;
    case DType::bf16:
      return memory::data_type::bf16;
    default:
      ARETE_BUG("dtype without a oneDNN counterpart");
  }
}

bool has_avx512() {
  static const bool has = [] {
    const auto isa = dnnl::get_effective_cpu_isa();
    return (unsigned(isa) & unsigned(dnnl::cpu_isa::avx512_core)) ==
           unsigned(dnnl::cpu_isa::avx512_core);
  }();
  return has;
}

ThreadScope::ThreadScope(double work)
    : threads_(in_parallel_region() || grain_for(work) > 1 ? 1 : num_threads()),
      previous_(omp_get_max_threads()) {
  if (threads_ != previous_) omp_set_num_threads(threads_);
}
ThreadScope::~ThreadScope() {
  if (threads_ != previous_) omp_set_num_threads(previous_);
}

namespace {
void check(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return;
  if (status == dnnl_out_of_memory)
    throw OutOfMemoryError("oneDNN", std::string(what) + ": out of memory");
  throw BugError("oneDNN",
                 std::string(what) + " failed with status " + std::to_string(int(status)));
}
}  // namespace

void execute(const dnnl::primitive& primitive, std::initializer_list<Argument> arguments) {
  // The C interface: the C++ one takes an unordered_map, which costs more than the rest of the
  // call.
  constexpr int kMax = 8;
  ARETE_ASSERT(arguments.size() <= size_t(kMax));
  struct Handles {
    dnnl_exec_arg_t list[kMax];
    int n = 0;
    ~Handles() {
      for (int i = 0; i < n; ++i) dnnl_memory_destroy(list[i].memory);
    }
  } args;
  for (const Argument& a : arguments) {
    if (a.data == nullptr) continue;
    dnnl_memory_t m = nullptr;
    check(dnnl_memory_create(&m, &a.desc->data, engine().get(), a.data), "memory");
    args.list[args.n++] = {a.index, m};
  }
  check(dnnl_primitive_execute(primitive.get(), stream().get(), args.n, args.list), "execution");
}

namespace {
struct MatmulPlan {
  bool usable = false;
  dnnl::matmul primitive;
  memory::desc a, b, out, bias, scratchpad;
};

memory::dims batched_dims(int64_t batch, int64_t stride, int64_t rows, int64_t cols) {
  return batch == 1 ? memory::dims{rows, cols} : memory::dims{stride == 0 ? 1 : batch, rows, cols};
}
memory::dims batched_strides(int64_t batch, const std::array<int64_t, 3>& s, int64_t rows,
                             int64_t cols) {
  // A stride of a dimension of size 1 has no meaning, but oneDNN looks at it.
  memory::dims strides{s[1], s[2]};
  if (rows == 1) strides[0] = std::max<int64_t>(cols * s[2], 1);
  if (cols == 1) strides[1] = s[1] == 1 ? rows : 1;
  if (batch != 1)
    strides.insert(strides.begin(),
                   s[0] == 0 ? std::max(rows * strides[0], cols * strides[1]) : s[0]);
  return strides;
}

std::shared_ptr<const MatmulPlan> make_plan(const MatmulSpec& s) {
  auto plan = std::make_shared<MatmulPlan>();
  try {
    const auto dt = to_dnnl(s.dtype);
    plan->a = memory::desc(batched_dims(s.batch, s.a_strides[0], s.m, s.k), dt,
                           batched_strides(s.batch, s.a_strides, s.m, s.k));
    plan->b = memory::desc(batched_dims(s.batch, s.b_strides[0], s.k, s.n), dt,
                           batched_strides(s.batch, s.b_strides, s.k, s.n));
    plan->out = memory::desc(batched_dims(s.batch, 1, s.m, s.n), to_dnnl(s.out_dtype),
                             batched_strides(s.batch, s.out_strides, s.m, s.n));
    memory::dims bias_dims(s.batch == 1 ? 2 : 3, 1);
    bias_dims.back() = s.n;
    memory::dims bias_strides(bias_dims.size(), s.n);
    bias_strides.back() = 1;
    plan->bias = memory::desc(bias_dims, dt, bias_strides);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.alpha != 1) attr.set_output_scales(0, {s.alpha});
    dnnl::post_ops ops;
    if (s.beta != 0) ops.append_sum(s.beta);
    attr.set_post_ops(ops);
    const auto desc = s.has_bias ? dnnl::matmul::desc(plan->a, plan->b, plan->bias, plan->out)
                                 : dnnl::matmul::desc(plan->a, plan->b, plan->out);
    const dnnl::matmul::primitive_desc pd(desc, attr, engine());
    if (std::strstr(pd.impl_info_str(), "ref") != nullptr) return plan;
    plan->scratchpad = pd.scratchpad_desc();
    plan->primitive = dnnl::matmul(pd);
    plan->usable = true;
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_out_of_memory) throw OutOfMemoryError("matmul", "out of memory");
  }
  return plan;
}

prim::PlanCache<Hash128, const MatmulPlan>& matmul_cache() {
  static auto* const cache = new prim::PlanCache<Hash128, const MatmulPlan>(512);
  return *cache;
}
}  // namespace

bool matmul(CpuBackend& backend, const MatmulSpec& s, const void* a, const void* b, void* out,
            const void* bias) {
  ARETE_ASSERT(!s.has_bias || s.alpha == 1);  // oneDNN would scale the bias too
  const ThreadScope threads(double(s.batch) * double(s.m) * double(s.n) * double(s.k));
  // Of a batch with fewer products than threads oneDNN 2.6 divides k among the threads, and where k
  // does not lie side by side in a it forgets parts of the sums.
  if (s.batch > 1 && s.batch < threads.threads() && s.a_strides[2] != 1) {
    MatmulSpec one = s;
    one.batch = 1;
    const auto at = [](const void* p, int64_t elements, DType t) {
      return static_cast<const std::byte*>(p) + elements * int64_t(size_of(t));
    };
    for (int64_t i = 0; i < s.batch; ++i)
      if (!matmul(backend, one, at(a, i * s.a_strides[0], s.dtype),
                  at(b, i * s.b_strides[0], s.dtype),
                  const_cast<std::byte*>(at(out, i * s.out_strides[0], s.out_dtype)), bias))
        return false;
    return true;
  }
  PlanKey key{threads.threads(),
              int64_t(s.dtype),
              int64_t(s.out_dtype),
              s.batch,
              s.m,
              s.n,
              s.k,
              s.has_bias,
              std::bit_cast<int32_t>(s.alpha),
              std::bit_cast<int32_t>(s.beta)};
  for (const auto* strides : {&s.a_strides, &s.b_strides, &s.out_strides})
    key.append(strides->begin(), strides->end());
  const auto plan = matmul_cache().get(hash_of(key), [&] { return make_plan(s); });
  if (!plan->usable) return false;
  const size_t bytes = plan->scratchpad.get_size();
  struct Scratch {
    CpuBackend& backend;
    size_t bytes;
    void* data = bytes > 0 ? backend.scratch(bytes) : nullptr;
    ~Scratch() {
      if (data != nullptr) backend.release_scratch(data, bytes);
    }
  } scratch{backend, bytes};
  execute(plan->primitive,
          {{DNNL_ARG_SRC, &plan->a, const_cast<void*>(a)},
           {DNNL_ARG_WEIGHTS, &plan->b, const_cast<void*>(b)},
           {DNNL_ARG_DST, &plan->out, out},
           {DNNL_ARG_BIAS, &plan->bias, const_cast<void*>(s.has_bias ? bias : nullptr)},
           {DNNL_ARG_SCRATCHPAD, &plan->scratchpad, scratch.data}});
  return true;
}

}  // namespace arete::cpu::onednn
