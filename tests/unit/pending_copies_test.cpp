// Memory of the host that copies under way read or write: who waits for them, and when.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "arete/arete.h"
#include "tests/support/errors.h"

namespace arete {
namespace {

// A copy under way that the test ends by hand.
struct ModelCopy final : PendingCopy {
  explicit ModelCopy(const void* q) : in(q) {}
  bool is_done() const noexcept override { return done; }
  void wait() override {
    ++waits;
    done = true;
    if (fails) throw IndexError("model", "index out of range");
  }
  const void* queue() const noexcept override { return in; }
  const void* in;
  bool done = false, fails = false;
  int waits = 0;
};

TEST(PendingCopies, ReadersWaitForCopiesThatWrite) {
  const Tensor t = arange(4, kFloat32);
  int queue = 0;
  const auto copy = std::make_shared<ModelCopy>(&queue);
  t.storage()->add_pending(copy, true);
  EXPECT_EQ(copy->waits, 0);
  EXPECT_EQ((t + 1).to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(copy->waits, 1);
  EXPECT_FALSE(t.storage()->has_pending_copies());
}

TEST(PendingCopies, OnlyWritersWaitForCopiesThatRead) {
  Tensor t = arange(4, kFloat32);
  int queue = 0;
  const auto copy = std::make_shared<ModelCopy>(&queue);
  t.storage()->add_pending(copy, false);
  EXPECT_EQ(t.sum().item<float>(), 6);
  EXPECT_EQ(copy->waits, 0);
  t.add_(1);
  EXPECT_EQ(copy->waits, 1);
  t.storage()->add_pending(std::make_shared<ModelCopy>(&queue), false);
  const auto second = std::make_shared<ModelCopy>(&queue);
  t.storage()->add_pending(second, false);
  EXPECT_NE(t.data_ptr(), nullptr);  // may be written through
  EXPECT_EQ(second->waits, 1);
}

TEST(PendingCopies, CopiesOfOneQueueNeedNotWaitForEachOther) {
  const Tensor t = zeros({4});
  int a = 0, b = 0;
  const auto first = std::make_shared<ModelCopy>(&a);
  t.storage()->wait_for_other_queues(&a, true);
  t.storage()->add_pending(first, true);
  t.storage()->wait_for_other_queues(&a, true);
  EXPECT_EQ(first->waits, 0);
  t.storage()->wait_for_other_queues(&b, false);
  EXPECT_EQ(first->waits, 1);
}

TEST(PendingCopies, AnErrorOfACopyIsRaisedOnce) {
  const Tensor t = zeros({4});
  int queue = 0;
  const auto copy = std::make_shared<ModelCopy>(&queue);
  copy->fails = true;
  t.storage()->add_pending(copy, true);
  EXPECT_ERROR(t.sum(), "index out of range");
  EXPECT_EQ(t.sum().item<float>(), 0);
}

}  // namespace
}  // namespace arete
