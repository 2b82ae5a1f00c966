// What is asked of NCCL for each call, with functions in the library's place that write it down.
#include "arete/backend/cuda/lib/nccl_comm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <sstream>
#include <thread>

#include "arete/base/distributed_error.h"

namespace arete::cuda {
namespace {

using nccl::Comm;
using nccl::Op;
using nccl::Result;
using nccl::Type;
using prim::CollectiveArgs;
using prim::CollectiveKind;
using prim::ReduceKind;
using prim::View;
using std::chrono::milliseconds;

std::ostringstream said;
// What the next calls give, and how often asking gives "in progress" then.
Result group_result = nccl::kSuccess, later_result = nccl::kSuccess;
std::atomic<int> in_progress{0};
std::atomic<bool> aborts_hang{false}, aborted{false}, destroyed{false};
double factor_seen = 0;
std::byte memory[1 << 12];

std::string at(const void* p) {
  const auto offset = static_cast<const std::byte*>(p) - memory;
  return p ? "+" + std::to_string(offset) : "null";
}

const Nccl& fake_nccl(int version = 22809) {
  static Nccl f;
  f.version = version;
  f.init_rank = [](Comm* c, int, nccl::UniqueId, int, nccl::Config* config) {
    EXPECT_EQ(config->blocking, 1);
    EXPECT_EQ(config->magic, 0xcafebeefu);
    *c = reinterpret_cast<Comm>(1);
    return in_progress > 0 ? nccl::kInProgress : later_result;
  };
  f.finalize = [](Comm) { return nccl::kSuccess; };
  f.destroy = [](Comm) {
    destroyed = true;
    return nccl::kSuccess;
  };
  f.abort = [](Comm) {
    while (aborts_hang) std::this_thread::sleep_for(milliseconds(1));
    aborted = true;
    return nccl::kSuccess;
  };
  f.async_error = [](Comm, Result* r) {
    *r = in_progress > 0 ? nccl::kInProgress : later_result;
    if (in_progress > 0) --in_progress;
    return nccl::kSuccess;
  };
  f.group_start = [] {
    said << "(";
    return nccl::kSuccess;
  };
  f.group_end = [] {
    said << ")";
    return in_progress > 0 ? nccl::kInProgress : group_result;
  };
  f.all_reduce = [](const void* in, void* out, size_t n, Type t, Op op, Comm, void*) {
    said << "all_reduce " << at(in) << " " << at(out) << " " << n << " t" << t << " o" << op << ";";
    return nccl::kSuccess;
  };
  f.reduce = [](const void* in, void* out, size_t n, Type t, Op op, int root, Comm, void*) {
    said << "reduce " << at(in) << " " << at(out) << " " << n << " t" << t << " o" << op << " r"
         << root << ";";
    return nccl::kSuccess;
  };
  f.broadcast = [](const void* in, void* out, size_t n, Type t, int root, Comm, void*) {
    said << "broadcast " << at(in) << " " << at(out) << " " << n << " t" << t << " r" << root
         << ";";
    return nccl::kSuccess;
  };
  f.all_gather = [](const void* in, void* out, size_t n, Type t, Comm, void*) {
    said << "all_gather " << at(in) << " " << at(out) << " " << n << " t" << t << ";";
    return nccl::kSuccess;
  };
  f.reduce_scatter = [](const void* in, void* out, size_t n, Type t, Op op, Comm, void*) {
    said << "reduce_scatter " << at(in) << " " << at(out) << " " << n << " t" << t << " o" << op
         << ";";
    return nccl::kSuccess;
  };
  f.send = [](const void* p, size_t n, Type t, int to, Comm, void*) {
    said << "send " << at(p) << " " << n << " t" << t << " to " << to << ";";
    return nccl::kSuccess;
  };
  f.recv = [](void* p, size_t n, Type t, int from, Comm, void*) {
    said << "recv " << at(p) << " " << n << " t" << t << " from " << from << ";";
    return nccl::kSuccess;
  };
  f.create_premul_sum = [](Op* op, void* factor, Type t, int on_host, Comm) {
    EXPECT_EQ(on_host, 1);
    factor_seen = t == nccl::kFloat64   ? *static_cast<double*>(factor)
                  : t == nccl::kFloat32 ? double(*static_cast<float*>(factor))
                  : t == nccl::kFloat16 ? double(float(*static_cast<Half*>(factor)))
                                        : double(float(*static_cast<BFloat16*>(factor)));
    *op = Op(9);
    return nccl::kSuccess;
  };
  f.destroy_op = [](Op op, Comm) {
    said << "~o" << op;
    return nccl::kSuccess;
  };
  f.error_string = [](Result) { return "remote process exited"; };
  f.last_error = [](Comm) { return "rank 1 is gone"; };
  return f;
}

class NcclTest : public testing::Test {
 protected:
  void SetUp() override {
    group_result = later_result = nccl::kSuccess;
    in_progress = 0;
    aborts_hang = aborted = destroyed = false;
    fake_nccl();
  }
  static View view(int64_t offset, const int64_t& size, DType dtype = kFloat32) {
    static const int64_t one = 1;
    return {memory + offset, dtype, IntList(&size, 1), IntList(&one, 1)};
  }
  std::string run(int rank, const CollectiveArgs& a) {
    NcclComm comm(fake_nccl(), {}, rank, 3, true, milliseconds(1000));
    return run(comm, a);
  }
  std::string run(NcclComm& comm, const CollectiveArgs& a) {
    said.str("");
    comm.run({&a, 1}, nullptr);
    return said.str();
  }
  std::string reduction(DType dtype, ReduceKind op, double factor = 1) {
    const View v = view(0, four, dtype);
    return run(0, {.kind = CollectiveKind::all_reduce,
                   .in = {&v, 1},
                   .out = {&v, 1},
                   .reduce = op,
                   .factor = factor});
  }
  const int64_t none = 0, two = 2, four = 4;
};

TEST(Nccl, TheLibraryIsFoundOrMissed) {
  std::string problem;
  const Nccl* const found = find_nccl_library(problem);
  if (found)
    EXPECT_GE(found->version, nccl::kOldest);
  else
    EXPECT_NE(problem.find("NCCL"), std::string::npos);
}

TEST_F(NcclTest, Reductions) {
  EXPECT_EQ(reduction(kFloat32, ReduceKind::sum), "(all_reduce +0 +0 4 t7 o0;)");
  EXPECT_EQ(reduction(kFloat16, ReduceKind::avg), "(all_reduce +0 +0 4 t6 o4;)");
  EXPECT_EQ(reduction(kBFloat16, ReduceKind::max), "(all_reduce +0 +0 4 t9 o2;)");
  EXPECT_EQ(reduction(kInt64, ReduceKind::min), "(all_reduce +0 +0 4 t4 o3;)");
  EXPECT_EQ(reduction(kInt8, ReduceKind::product), "(all_reduce +0 +0 4 t0 o1;)");
  EXPECT_EQ(reduction(kBool, ReduceKind::sum), "(all_reduce +0 +0 4 t1 o2;)");
  EXPECT_EQ(reduction(kComplex128, ReduceKind::sum), "(all_reduce +0 +0 8 t8 o0;)");
  EXPECT_EQ(reduction(kFloat8E5M2, ReduceKind::sum), "(all_reduce +0 +0 4 t11 o0;)");
  for (const DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64, kComplex64}) {
    const int type = dtype == kFloat16 ? 6 : dtype == kBFloat16 ? 9 : dtype == kFloat64 ? 8 : 7;
    EXPECT_EQ(reduction(dtype, ReduceKind::premul_sum, 0.25),
              "(all_reduce +0 +0 " + std::to_string(dtype == kComplex64 ? 8 : 4) + " t" +
                  std::to_string(type) + " o9;)~o9");
    EXPECT_EQ(factor_seen, 0.25);
  }
  for (const ReduceKind op : {ReduceKind::band, ReduceKind::bor, ReduceKind::bxor})
    EXPECT_THROW(reduction(kInt32, op), TypeError);
  EXPECT_THROW(reduction(kInt16, ReduceKind::sum), TypeError);
  EXPECT_THROW(reduction(kBool, ReduceKind::avg), TypeError);
  EXPECT_THROW(reduction(kComplex64, ReduceKind::max), TypeError);
  EXPECT_THROW(reduction(kInt32, ReduceKind::premul_sum, 2), TypeError);
  EXPECT_EQ(said.str(), "");  // nothing was begun
  fake_nccl(22300);
  NcclComm old(fake_nccl(22300), {}, 0, 3, true, milliseconds(1000));
  const View v = view(0, four, kFloat8E4M3);
  EXPECT_THROW(run(old, {.kind = CollectiveKind::all_reduce, .in = {&v, 1}, .out = {&v, 1}}),
               TypeError);
}

TEST_F(NcclTest, PartsOfOneSizeAreOneMessage) {
  const View parts[] = {view(64, two), view(72, two), view(80, two)};
  const View uneven[] = {view(64, two), view(72, none), view(72, four)};
  const View v = view(0, two), w = view(0, four);
  EXPECT_EQ(run(1, {.kind = CollectiveKind::all_gather, .in = {&v, 1}, .out = parts}),
            "(all_gather +0 +64 8 t1;)");
  EXPECT_EQ(run(2, {.kind = CollectiveKind::all_gather, .in = {&w, 1}, .out = uneven}),
            "(broadcast +64 +64 8 t1 r0;broadcast +0 +72 16 t1 r2;)");
  EXPECT_EQ(run(1, {.kind = CollectiveKind::reduce_scatter, .in = parts, .out = {&v, 1}}),
            "(reduce_scatter +64 +0 2 t7 o0;)");
  EXPECT_EQ(run(2, {.kind = CollectiveKind::reduce_scatter, .in = uneven, .out = {&w, 1}}),
            "(reduce +64 +64 2 t7 o0 r0;reduce +72 +0 4 t7 o0 r2;)");
  EXPECT_EQ(run(0, {.kind = CollectiveKind::all_to_all, .in = uneven, .out = parts}),
            "(send +64 8 t1 to 0;recv +64 8 t1 from 0;recv +72 8 t1 from 1;send +72 16 t1 to 2;"
            "recv +80 8 t1 from 2;)");
}

TEST_F(NcclTest, RootsAndMessages) {
  const View parts[] = {view(64, two), view(72, two), view(80, none)};
  const View v = view(0, two), nothing = view(0, none);
  EXPECT_EQ(run(0, {.kind = CollectiveKind::broadcast, .out = {&v, 1}, .root = 2}),
            "(broadcast +0 +0 8 t1 r2;)");
  EXPECT_EQ(run(0, {.kind = CollectiveKind::reduce, .in = {&v, 1}, .root = 2}),
            "(reduce +0 +0 2 t7 o0 r2;)");
  EXPECT_EQ(run(0, {.kind = CollectiveKind::gather, .in = {&v, 1}, .out = parts, .root = 0}),
            "(send +0 8 t1 to 0;recv +64 8 t1 from 0;recv +72 8 t1 from 1;)");
  EXPECT_EQ(run(2, {.kind = CollectiveKind::gather, .in = {&nothing, 1}, .root = 0}), "()");
  EXPECT_EQ(run(1, {.kind = CollectiveKind::scatter, .in = parts, .out = {&v, 1}, .root = 1}),
            "(send +64 8 t1 to 0;send +72 8 t1 to 1;recv +0 8 t1 from 1;)");
  EXPECT_EQ(run(0, {.kind = CollectiveKind::all_reduce, .in = {&nothing, 1}, .out = {&nothing, 1}}),
            "()");
  const CollectiveArgs both[] = {{.kind = CollectiveKind::send, .in = {&v, 1}, .root = 2},
                                 {.kind = CollectiveKind::recv, .out = {&v, 1}, .root = 1}};
  NcclComm comm(fake_nccl(), {}, 0, 3, true, milliseconds(1000));
  said.str("");
  comm.run(both, nullptr);
  EXPECT_EQ(said.str(), "(send +0 8 t1 to 2;recv +0 8 t1 from 1;)");
}

TEST_F(NcclTest, WhatIsInProgressIsWaitedFor) {
  in_progress = 3;
  NcclComm comm(fake_nccl(), {}, 0, 3, true, milliseconds(1000));
  EXPECT_EQ(in_progress, 0);
  in_progress = 5;
  const View v = view(0, two);
  run(comm, {.kind = CollectiveKind::broadcast, .out = {&v, 1}});
  EXPECT_EQ(in_progress, 0);
  in_progress = INT_MAX;
  NcclComm* late = nullptr;
  EXPECT_THROW(late = new NcclComm(fake_nccl(), {}, 0, 3, true, milliseconds(20)),
               DistributedError);
  EXPECT_EQ(late, nullptr);
  EXPECT_TRUE(aborted);
  in_progress = 0;
}

TEST_F(NcclTest, ErrorsAndTheEnd) {
  const View v = view(0, two);
  const CollectiveArgs a{.kind = CollectiveKind::broadcast, .out = {&v, 1}};
  {
    NcclComm comm(fake_nccl(), {}, 0, 3, true, milliseconds(1000));
    EXPECT_EQ(comm.problem(), "");
    later_result = Result(6);
    EXPECT_NE(comm.problem().find("remote process exited: rank 1 is gone"), std::string::npos);
    later_result = nccl::kSuccess;
    group_result = Result(6);
    EXPECT_THROW(run(comm, a), DistributedError);
    EXPECT_EQ(said.str(), "(broadcast +0 +0 8 t1 r0;)");
    group_result = nccl::kSuccess;
    aborts_hang = true;  // others wait no longer than they should
    comm.abort();
    EXPECT_FALSE(aborted);
    aborts_hang = false;
    EXPECT_THROW(run(comm, a), DistributedError);
    EXPECT_EQ(comm.problem(), "");
  }
  EXPECT_FALSE(destroyed);  // what was ended once
  { const NcclComm comm(fake_nccl(), {}, 0, 3, true, milliseconds(1000)); }
  EXPECT_TRUE(destroyed);
}

}  // namespace
}  // namespace arete::cuda
