// Groups whose processes are threads here: each has its part of a group, by Gloo and by messages
// through a store, which compares the library's calls with their decompositions.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cmath>
#include <complex>
#include <functional>
#include <latch>
#include <system_error>
#include <thread>

#include "arete/arete.h"
#include "arete/base/distributed_error.h"
#include "arete/distributed/distributed.h"
#include "arete/distributed/environment.h"
#include "arete/distributed/tcp_store.h"
#include "arete/distributed/threads_internal.h"
#include "tests/distributed/rank_threads.h"

namespace arete::distributed {
namespace {

using prim::ReduceKind;

void as_ranks(const std::string& backend, int size, const std::function<void(ProcessGroup&)>& f,
              Milliseconds timeout = std::chrono::seconds(60)) {
  test::with_ranks(
      size, [&](const ProcessGroupPtr& group) { f(*group); }, backend, timeout);
}

Tensor values_of(int rank, int64_t n, DType dtype) {
  return ((arange(n, kFloat32) * (rank + 1) + rank) % 7).to(dtype);
}

class Groups : public testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  void SetUp() override {
    if (backend() == "gloo" && !is_gloo_available()) GTEST_SKIP() << "built without Gloo";
  }
  static std::string backend() { return std::get<0>(GetParam()); }
  static int size() { return std::get<1>(GetParam()); }
};

TEST_P(Groups, reduce_all_dtypes) {
  as_ranks(backend(), size(), [&](ProcessGroup& g) {
    for (const DType t : {kUInt8, kInt8, kInt16, kInt32, kInt64, kFloat16, kBFloat16, kFloat32,
                          kFloat64, kComplex64, kComplex128, kBool}) {
      for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::product, ReduceKind::min,
                                    ReduceKind::max, ReduceKind::band, ReduceKind::bxor}) {
        Tensor x = values_of(g.rank(), 5, t), expected = values_of(0, 5, t);
        const bool bits = kind == ReduceKind::band || kind == ReduceKind::bxor;
        if ((bits && !is_integral_or_bool(t)) || (is_complex(t) && int(kind) >= 2)) {
          EXPECT_THROW(g.all_reduce(x, kind), TypeError);
          continue;
        }
        for (int r = 1; r < g.size(); ++r) {
          const Tensor y = values_of(r, 5, t);
          const auto combine = [&]() -> Tensor {
            switch (kind) {
              case ReduceKind::sum:
                return (expected + y).to(t);
              case ReduceKind::product:
                return (expected * y).to(t);
              case ReduceKind::min:
                return t == kBool ? expected & y : minimum(expected, y);
              case ReduceKind::max:
                return t == kBool ? expected | y : maximum(expected, y);
              case ReduceKind::band:
                return expected & y;
              default:
                return expected ^ y;
            }
          };
          expected = combine();
        }
        g.all_reduce(x, kind);
        // Small whole numbers: no order of the sums rounds.
        EXPECT_TRUE(equal(x, expected)) << name_of(t) << " " << name_of(kind) << x.to_string();
      }
    }
  });
}

TEST_P(Groups, averages_and_scaled_sums) {
  as_ranks(backend(), size(), [&](ProcessGroup& g) {
    Tensor x = full({3}, double(g.rank()), kFloat32);
    g.all_reduce(x, kAvg);
    EXPECT_FLOAT_EQ(x[1].item<float>(), float(g.size() - 1) / 2);
    Tensor y = full({3}, 1.0, kBFloat16);
    g.all_reduce(y, ReduceOp(ReduceKind::premul_sum, 0.5));
    EXPECT_FLOAT_EQ(y[1].item<float>(), float(g.size()) / 2);
    EXPECT_THROW(g.all_reduce(ones({2}, kInt32), kAvg), TypeError);
  });
}

TEST_P(Groups, move_tensors) {
  as_ranks(backend(), size(), [&](ProcessGroup& g) {
    const int n = g.size(), me = g.rank();
    const auto of = [](int64_t rank, int64_t length) { return full({length}, rank, kInt64); };
    for (int root = 0; root < n; ++root) {
      Tensor x = of(me, 3);
      g.broadcast(x, root);
      EXPECT_TRUE(equal(x, of(root, 3)));
      x = of(me, 3);
      g.reduce(x, root);
      if (me == root)
        EXPECT_TRUE(equal(x, of(n * (n - 1) / 2, 3)));
      else
        EXPECT_TRUE(equal(x, of(me, 3)));
      // Sizes differ from rank to rank.
      std::vector<Tensor> list;
      if (me == root)
        for (int r = 0; r < n; ++r) list.push_back(of(-1, r));
      g.gather(of(me, me), list, root);
      for (size_t r = 0; r < list.size(); ++r)
        EXPECT_TRUE(equal(list[r], of(int64_t(r), int64_t(r))));
      for (size_t r = 0; r < list.size(); ++r) list[r].fill_(int64_t(10 * root) + int64_t(r));
      Tensor got = of(-1, me);
      g.scatter(got, list, root);
      EXPECT_TRUE(equal(got, of(10 * root + me, me)));
    }
    std::vector<Tensor> even, uneven;
    for (int r = 0; r < n; ++r) {
      even.push_back(of(-1, 2).reshape({2, 1}));
      uneven.push_back(of(-1, r));
    }
    g.all_gather(even, of(me, 2));
    g.all_gather(uneven, of(me, me));
    for (int r = 0; r < n; ++r) {
      EXPECT_TRUE(equal(even[r], of(r, 2).reshape({2, 1})));
      EXPECT_TRUE(equal(uneven[r], of(r, r)));
    }
    Tensor flat = of(-1, 2 * n);
    g.all_gather_into_tensor(flat, of(me, 2));
    EXPECT_TRUE(equal(flat, arange(n, kInt64).reshape({n, 1}).expand({n, 2}).reshape({2 * n})));
    std::vector<Tensor> to, from;
    for (int r = 0; r < n; ++r) {
      to.push_back(of(10 * me + r, me + r));
      from.push_back(of(-1, me + r));
    }
    g.all_to_all(from, to);
    for (int r = 0; r < n; ++r) EXPECT_TRUE(equal(from[r], of(10 * r + me, me + r)));
    Tensor mine = of(0, 2);
    g.reduce_scatter_tensor(mine, flat + me);
    EXPECT_TRUE(equal(mine, of(n * me + n * (n - 1) / 2, 2)));
    g.barrier();
    g.monitored_barrier();
  });
}

TEST_P(Groups, tensors_out_of_order) {
  as_ranks(backend(), size(), [&](ProcessGroup& g) {
    Tensor base = zeros({4, 6}, kFloat32);
    Tensor part = base.slice(1, 1, 6, 2);
    part.fill_(double(g.rank()));
    const uint64_t version = base.version();
    g.all_reduce(part, kMax);
    EXPECT_GT(base.version(), version);
    EXPECT_EQ(base.sum().item<float>(), float(4 * 3 * (g.size() - 1)));
    g.all_reduce(zeros({0}, kFloat32));
    const Tensor scalar = ones({}, kFloat32);
    g.all_reduce(scalar);
    EXPECT_EQ(scalar.item<float>(), float(g.size()));
  });
}

// Results that are copied back, to memory from which the call, and the next one, sends.
TEST_P(Groups, gather_rows_of_one_memory) {
  as_ranks(backend(), size(), [&](ProcessGroup& g) {
    const int n = g.size();
    Tensor base = zeros({n, 6}, kFloat32), last = base[n - 1].slice(0, 4, 6);
    std::vector<Tensor> rows;
    for (int r = 0; r < n; ++r) rows.push_back(base[r].slice(0, 0, 4));
    rows[g.rank()].fill_(double(g.rank() + 1));
    const WorkPtr first = g.all_gather(rows, rows[g.rank()], true);
    const WorkPtr second = g.broadcast(last, 0, true);
    EXPECT_EQ(base.sum().item<float>(), float(4 * n * (n + 1) / 2));  // waits by itself
    first->wait();
    second->wait();
    for (int r = 0; r < n; ++r) EXPECT_TRUE(equal(rows[r], full({4}, double(r + 1), kFloat32)));
  });
}

TEST_P(Groups, gather_where_layouts_differ_by_rank) {
  as_ranks(backend(), size(), [&](ProcessGroup& g) {
    const int n = g.size();
    const Tensor base = zeros({n, 2, 3}, kFloat32);
    std::vector<Tensor> parts;
    for (int r = 0; r < n; ++r) parts.push_back(g.rank() == 0 ? base[r].t() : base[r]);
    g.all_gather(parts, arange(6, kFloat32) + double(10 * g.rank()));
    for (int r = 0; r < n; ++r)
      EXPECT_TRUE(equal(parts[r].reshape({6}), arange(6, kFloat32) + double(10 * r)));
  });
}

TEST_P(Groups, readers_wait_for_what_is_under_way) {
  as_ranks(backend(), size(), [&](ProcessGroup& g) {
    std::vector<WorkPtr> works;
    std::vector<Tensor> tensors;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(full({20000}, double(i), kFloat32));
      works.push_back(g.all_reduce(tensors.back(), {}, true));
      g.all_reduce(tensors.back(), kMax, true);
    }
    // Nobody calls wait().
    for (int i = 19; i >= 0; --i)
      EXPECT_EQ((tensors[i] + 1)[19999].item<float>(), float(i * g.size() + 1));
    for (const WorkPtr& w : works) w->wait();
    EXPECT_TRUE(works[0]->is_completed());
  });
}

TEST_P(Groups, messages) {
  as_ranks(backend(), size(), [&](ProcessGroup& g) {
    if (g.size() < 2) return;
    const int next = (g.rank() + 1) % g.size(), last = (g.rank() + g.size() - 1) % g.size();
    Tensor in = zeros({1000}, kFloat32), other = zeros({2}, kFloat32);
    // All receive before they send, and in another order.
    const WorkPtr r1 = g.recv(in, last, 1, true), r2 = g.recv(other, last, 2, true);
    const Tensor out = full({1000}, double(g.rank()), kFloat32);
    const WorkPtr s2 = g.send(full({2}, 7.0, kFloat32), next, 2, true),
                  s1 = g.send(out, next, 1, true);
    for (const WorkPtr& w : {r2, r1, s1, s2}) w->wait();
    EXPECT_TRUE(equal(in, full({1000}, double(last), kFloat32)));
    EXPECT_EQ(other[0].item<float>(), 7);
    EXPECT_EQ(r1->source_rank(), last);
    // From anybody.
    if (g.rank() == 0) {
      std::vector<int> came(g.size());
      for (int i = 1; i < g.size(); ++i) {
        int source = -1;
        g.recv(other, -1, 3, false, &source);
        EXPECT_EQ(other[0].item<float>(), float(source));
        ++came[source];
      }
      for (int r = 1; r < g.size(); ++r) EXPECT_EQ(came[r], 1);
    } else {
      g.send(full({2}, double(g.rank()), kFloat32), 0, 3);
    }
    EXPECT_THROW(g.send(other, g.rank()), ValueError);
    EXPECT_THROW(g.send(other, g.size()), ValueError);
  });
}

TEST_P(Groups, lists_of_tensors_are_checked) {
  as_ranks(backend(), size(), [&](ProcessGroup& g) {
    using Tensors = std::vector<Tensor>;
    const int me = g.rank();
    const Tensor other = ones({2});
    // Of each call one list, for the tensor `other` beside it.
    const std::pair<const char*, std::function<void(const Tensors&)>> calls[] = {
        {"tensor_list", [&](const Tensors& list) { g.all_gather(list, other); }},
        {"input_list", [&](const Tensors& list) { g.reduce_scatter(other, list); }},
        {"output_tensor_list",
         [&](const Tensors& list) { g.all_to_all(list, Tensors(size_t(g.size()), other)); }},
        {"gather_list", [&](const Tensors& list) { g.gather(other, list, me); }},
        {"scatter_list", [&](const Tensors& list) { g.scatter(other, list, me); }}};
    for (const auto& [argument, call] : calls) {
      Tensors list(size_t(g.size()), ones({2}));
      list[size_t(me)] = Tensor();
      EXPECT_THROW(call(list), TypeError) << argument;
      list[size_t(me)] = ones({3});
      try {
        call(list);
        ADD_FAILURE() << argument;
      } catch (const ValueError& e) {
        for (const std::string part : {argument, "2 elements", "Got: 3"})
          EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      }
      list.push_back(other);
      EXPECT_THROW(call(list), ValueError) << argument;
    }
    const Tensors list(size_t(g.size()), other);
    EXPECT_THROW(g.all_to_all(list, {}), ValueError);
    EXPECT_THROW(g.all_gather(list, Tensor()), TypeError);
  });
}

INSTANTIATE_TEST_SUITE_P(All, Groups,
                         testing::Combine(testing::Values("gloo", "store"),
                                          testing::Values(1, 2, 3)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

class GroupFaults : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (GetParam() == std::string("gloo") && !is_gloo_available())
      GTEST_SKIP() << "built without Gloo";
  }
};

// However a rank ends, the one that waits for it does not wait for ever.
struct CountDown {
  std::latch& latch;
  ~CountDown() { latch.count_down(); }
};

TEST_P(GroupFaults, one_does_not_come) {
  std::latch ended(1);
  as_ranks(GetParam(), 2, [&](ProcessGroup& g) {
    std::optional<CountDown> end;
    if (g.rank() == 0) end.emplace(ended);
    g.barrier();  // connections take their time
    if (g.rank() == 1) return ended.wait();
    g.set_timeout(Milliseconds(200));
    try {
      g.all_reduce(ones({2}, kFloat32));
      ADD_FAILURE();
    } catch (const DistributedError& e) {
      EXPECT_EQ(e.failure(), DistributedError::Failure::backend);
    }
  });
}

TEST_P(GroupFaults, monitored_barrier_names_who_did_not_come) {
  std::latch ended(2);
  as_ranks(GetParam(), 3, [&](ProcessGroup& g) {
    if (g.rank() == 2) return ended.wait();
    const CountDown end{ended};
    try {
      g.monitored_barrier(Milliseconds(100));
      ADD_FAILURE();
    } catch (const DistributedError& e) {
      const std::string who = g.rank() == 0 ? "Rank 2" : "Rank 0";
      EXPECT_NE(std::string(e.what()).find(who + " failed to pass monitoredBarrier in 100 ms"),
                std::string::npos)
          << e.what();
    }
  });
}

// A message that never comes does not keep a process from ending.
TEST_P(GroupFaults, the_end_of_a_group_ends_what_waits) {
  as_ranks(GetParam(), 2, [&](ProcessGroup& g) {
    const Tensor x = ones({2}, kFloat32);
    if (g.rank() == 0) g.recv(x, 1, 0, true);
    g.barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(All, GroupFaults, testing::Values("gloo", "store"));

// One connection for both ranks: who waits at it must not keep the other from sending.
TEST(Distributed, long_messages_through_a_shared_connection) {
  const auto store = std::make_shared<TCPStore>(
      "localhost",
      TcpStoreOptions{.port = 0, .is_server = true, .timeout = std::chrono::seconds(10)});
  const int64_t n = (int64_t(12) << 20) + 5;
  const auto rank = [&](int r) {
    return std::make_unique<ProcessGroup>("g", "store", store, r, std::vector<int>{0, 1},
                                          std::chrono::seconds(20));
  };
  const auto sender = rank(0), receiver = rank(1);
  Tensor came = zeros({n}, kFloat32), shorter = zeros({int64_t(1) << 20}, kFloat32);
  const WorkPtr work = receiver->recv(came, 0, 0, true);
  sender->send(ones({n}, kFloat32), 1);
  work->wait();
  EXPECT_TRUE(came.eq(1).all().item<bool>());
  // A tensor for more than what was sent.
  sender->send(shorter, 1);
  EXPECT_THROW(receiver->recv(came, 0), DistributedError);
}

TEST(Distributed, threads_that_cannot_be_started) {
  pthread_attr_t before, huge;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t(1) << 50), 0);
  ProcessGroup group("g", "fake", std::make_shared<HashStore>(), 0, {0, 1},
                     std::chrono::seconds(5));
  TaskThreads threads(2);
  const Tensor x = ones({2}, kFloat32);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  EXPECT_THROW(threads.submit([] { ADD_FAILURE(); }), std::system_error);
  EXPECT_ANY_THROW(group.all_reduce(x, {}, true));
  EXPECT_ANY_THROW(group.recv(x, 1, 0, true));
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  pthread_attr_destroy(&huge);
  pthread_attr_destroy(&before);
  EXPECT_TRUE(threads.is_idle());
  std::atomic<bool> done{false};
  threads.submit([&] { done = true; });
  EXPECT_TRUE(threads.wait_idle(std::chrono::steady_clock::now() + std::chrono::seconds(20)));
  EXPECT_TRUE(done);
}

TEST(Distributed, mistakes_are_named) {
  EXPECT_FALSE(is_initialized());
  EXPECT_THROW(get_rank(), ValueError);
  if (!is_nccl_available()) {
    EXPECT_THROW(init_process_group({.backend = "nccl",
                                     .rank = 0,
                                     .world_size = 1,
                                     .store = std::make_shared<HashStore>()}),
                 DistributedError);
  }
  EXPECT_THROW(init_process_group({.init_method = "tcp://localhost:1"}), ValueError);
  EXPECT_THROW(init_process_group({.init_method = "none://x", .rank = 0, .world_size = 1}),
               ValueError);
  EXPECT_THROW(
      init_process_group({.init_method = "tcp://localhost:99999", .rank = 0, .world_size = 1}),
      ValueError);
}

TEST(Distributed, groups_of_a_fake_world) {
  const auto world_group = init_process_group({.backend = "fake", .rank = 3, .world_size = 8});
  EXPECT_EQ(get_rank(), 3);
  EXPECT_EQ(get_world_size(), 8);
  EXPECT_THROW(init_process_group({.backend = "fake", .rank = 0, .world_size = 1}), ValueError);
  EXPECT_EQ(new_group({0, 1}), nullptr);
  const auto part = new_group({7, 3});
  EXPECT_EQ(part->rank(), 1);
  EXPECT_EQ(get_group_rank(*part, 7), 0);
  EXPECT_THROW(get_group_rank(*part, 0), ValueError);
  EXPECT_THROW(new_group({8}), ValueError);
  const Tensor x = ones({2}, kFloat32);
  broadcast(x, 7, part);
  EXPECT_THROW(broadcast(x, 0, part), ValueError);
  std::vector<Tensor> list = {zeros({2}, kFloat32), zeros({2}, kFloat32)};
  all_gather(list, x, part);
  EXPECT_TRUE(equal(list[1], x));
  const Tensor nothing = empty({4}, TensorOptions(kFloat32, kMeta));
  all_reduce(nothing);
  EXPECT_EQ(all_gather({nothing, nothing}, nothing, part, true)->exception(), nullptr);
  destroy_process_group();
  EXPECT_FALSE(is_initialized());
}

TEST(Distributed, first_hosts_of_lists) {
  for (const auto& [nodes, first] : {std::pair("a", "a"),
                                     {"a,b", "a"},
                                     {"a[07-09,12],b", "a07"},
                                     {"a[3,5]x,b", "a3x"},
                                     {"n-1-[2]", "n-1-2"},
                                     {"b,a[1-2]", "b"},
                                     {"a[1", "a"}})
    EXPECT_EQ(first_host(nodes), first);
}

TEST(Distributed, addresses) {
  const auto meeting =
      rendezvous("tcp://localhost:0?rank=0&world_size=1", -1, -1, Milliseconds(5000));
  EXPECT_EQ(meeting.rank, 0);
  EXPECT_EQ(meeting.world_size, 1);
  meeting.store->set("k", "v");
  EXPECT_EQ(meeting.store->get("k"), "v");
  EXPECT_THROW(rendezvous("tcp://localhost?rank=0&world_size=1", -1, -1, Milliseconds(5000)),
               ValueError);
  EXPECT_THROW(rendezvous("file://?rank=0&world_size=1", -1, -1, Milliseconds(5000)), ValueError);
}

}  // namespace
}  // namespace arete::distributed
