#include "arete/compile/branches_internal.h"

#include <algorithm>
#include <utility>

namespace arete::compile {
namespace {

// Puts uses in order, those that touch each other as one: tensors of a list lie side by side.
void unite(std::vector<Use>& uses) {
  std::ranges::sort(uses, {}, [](const Use& u) { return std::pair(u.buffer, u.first); });
  size_t count = 0;
  for (const Use& u : uses)
    if (count > 0 && u.buffer == uses[count - 1].buffer && u.first <= uses[count - 1].last)
      uses[count - 1].last = std::max(uses[count - 1].last, u.last);
    else
      uses[count++] = u;
  uses.resize(count);
}

bool meet(const std::vector<Use>& a, const std::vector<Use>& b) {
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (x->buffer == y->buffer && overlap(*x, *y)) return true;
    std::pair(x->buffer, x->last) <= std::pair(y->buffer, y->last) ? ++x : ++y;
  }
  return false;
}

// What a step reads alone, and what it writes.
struct ReadAndWritten {
  explicit ReadAndWritten(const std::vector<Use>& uses) {
    for (const Use& u : uses) (u.access == prim::Access::read ? read : written).push_back(u);
    unite(read);
    unite(written);
  }
  bool collide(const ReadAndWritten& other) const {
    return meet(written, other.written) || meet(written, other.read) || meet(read, other.written);
  }
  std::vector<Use> read, written;
};

}  // namespace

Order::Order(std::span<const std::vector<Use>> steps)
    : before_(steps.size(), std::vector<bool>(steps.size())), needs_(steps.size()) {
  std::vector<ReadAndWritten> uses(steps.begin(), steps.end());
  // From the last one: whoever comes before those that are waited for needs no wait.
  for (size_t k = 0; k < steps.size(); ++k)
    for (size_t j = k; j-- > 0;)
      if (!is_before(j, k) && uses[j].collide(uses[k])) {
        needs_[k].push_back(j);
        put_before(j, k);
      }
}

void Order::put_before(size_t a, size_t b) {
  before_[b][a] = true;
  for (size_t i = 0; i < a; ++i) before_[b][i] = before_[b][i] || before_[a][i];
}

std::vector<size_t> Order::behind() const {
  std::vector<size_t> behind(needs_.size());
  for (size_t k = needs_.size(); k-- > 0;)
    for (const size_t j : needs_[k]) behind[j] = std::max(behind[j], behind[k] + 1);
  return behind;
}

std::vector<size_t> Order::heirs(const std::vector<size_t>& behind) const {
  std::vector<size_t> heirs(needs_.size(), SIZE_MAX);
  for (size_t k = needs_.size(); k-- > 0;)
    for (const size_t j : needs_[k])
      if (behind[k] + 1 == behind[j]) heirs[j] = k;
  return heirs;
}

std::vector<size_t> Order::rows() const {
  std::vector<size_t> rows(needs_.size());
  for (size_t k = 0; k < needs_.size(); ++k)
    for (const size_t j : needs_[k]) rows[k] = std::max(rows[k], rows[j] + 1);
  return rows;
}

std::vector<BranchStep> branches_of(std::span<prim::RecordedCall* const> calls, size_t most) {
  std::vector<BranchStep> steps(calls.size());
  if (calls.size() > Order::kMostSteps || most < 2) return steps;
  std::vector<std::vector<Use>> uses(calls.size());  // by address
  for (size_t k = 0; k < calls.size(); ++k)
    calls[k]->for_each_operand([&](prim::View& v, prim::Access access) {
      if (v.numel() == 0) return;
      const auto [first, last] = extent_of(v);
      uses[k].push_back({0, first, last, access});
    });
  Order order(uses);
  const std::vector<size_t> behind = order.behind(), heirs = order.heirs(behind);
  std::vector<size_t> rows = order.rows();
  size_t longest = 0;
  for (size_t k = 0; k < calls.size(); ++k) longest = std::max(longest, rows[k] + behind[k]);
  std::vector<size_t> tails;  // of branches
  for (size_t k = 0; k < calls.size(); ++k) {
    std::vector<size_t>& waits = steps[k].waits = order.needs(k);
    for (const size_t j : waits) rows[k] = std::max(rows[k], rows[j] + 1);
    auto its = tails.end();
    for (size_t n = 0; n < waits.size() && its == tails.end(); ++n)
      if (heirs[waits[n]] == k) its = std::ranges::find(tails, waits[n]);
    // Neither it nor the tail's heir comes later for it, or not as late as those of the longest
    // row.
    const auto has_time = [&](size_t tail) {
      const size_t row = std::max(rows[k], rows[tail] + 1), heir = heirs[tail];
      return (row == rows[k] || row + behind[k] < longest) &&
             (heir == SIZE_MAX || heir < k || row < rows[heir]);
    };
    if (its == tails.end()) its = std::ranges::find_if(tails, has_time);
    if (its == tails.end() && tails.size() == most)
      its = std::ranges::min_element(tails);  // waits for more than it has to
    if (its == tails.end()) {
      its = tails.insert(its, k);
    } else {
      order.put_before(*its, k);
      rows[k] = std::max(rows[k], rows[*its] + 1);
      std::erase_if(waits, [&](size_t j) { return j == *its || order.is_before(j, *its); });
    }
    steps[k].branch = size_t(its - tails.begin());
    *its = k;
  }
  return steps;
}

}  // namespace arete::compile
