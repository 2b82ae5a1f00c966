#include "arete/compile/branches_internal.h"

#include <algorithm>
#include <utility>

#include "arete/compile/graph_internal.h"

namespace arete::compile {
namespace {

// Which steps come before which is a bit for each two: of longer graphs it is not asked.
constexpr size_t kMostOrdered = 1024;

using Range = std::pair<int64_t, int64_t>;  // addresses from the first to behind the last

// Puts them in order, those that touch each other as one: tensors of a list lie side by side.
void unite(std::vector<Range>& ranges) {
  std::ranges::sort(ranges);
  size_t count = 0;
  for (const Range& r : ranges)
    if (count > 0 && r.first <= ranges[count - 1].second)
      ranges[count - 1].second = std::max(ranges[count - 1].second, r.second);
    else
      ranges[count++] = r;
  ranges.resize(count);
}

bool overlap(const std::vector<Range>& a, const std::vector<Range>& b) {
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (x->first < y->second && y->first < x->second) return true;
    x->second <= y->second ? ++x : ++y;
  }
  return false;
}

// What a call reads alone, and what it writes.
struct Addresses {
  explicit Addresses(prim::RecordedCall& call) {
    call.for_each_operand([&](prim::View& v, prim::Access access) {
      if (v.numel() > 0) (access == prim::Access::read ? read : written).push_back(extent_of(v));
    });
    unite(read);
    unite(written);
  }
  bool collide(const Addresses& other) const {
    return overlap(written, other.written) || overlap(written, other.read) ||
           overlap(read, other.written);
  }
  std::vector<Range> read, written;
};

// Which of some calls come before which others.
class Order {
 public:
  explicit Order(std::span<prim::RecordedCall* const> calls)
      : before_(calls.size(), std::vector<bool>(calls.size())), needs_(calls.size()) {
    std::vector<Addresses> uses;
    for (prim::RecordedCall* call : calls) uses.emplace_back(*call);
    // From the last one: whoever comes before those that are waited for needs no wait.
    for (size_t k = 0; k < calls.size(); ++k)
      for (size_t j = k; j-- > 0;)
        if (!is_before(j, k) && uses[j].collide(uses[k])) {
          needs_[k].push_back(j);
          put_before(j, k);
        }
  }
  bool is_before(size_t a, size_t b) const { return before_[b][a]; }
  void put_before(size_t a, size_t b) {
    before_[b][a] = true;
    for (size_t i = 0; i < a; ++i) before_[b][i] = before_[b][i] || before_[a][i];
  }
  /// What a call waits for, the last one first.
  const std::vector<size_t>& needs(size_t call) const { return needs_[call]; }
  /// Of each call how many wait for it, and for each other, in a row.
  std::vector<size_t> behind() const {
    std::vector<size_t> behind(needs_.size());
    for (size_t k = needs_.size(); k-- > 0;)
      for (const size_t j : needs_[k]) behind[j] = std::max(behind[j], behind[k] + 1);
    return behind;
  }
  /// Of each call the one that waits for it and has most calls behind it; SIZE_MAX: none.
  std::vector<size_t> heirs(const std::vector<size_t>& behind) const {
    std::vector<size_t> heirs(needs_.size(), SIZE_MAX);
    for (size_t k = needs_.size(); k-- > 0;)
      for (const size_t j : needs_[k])
        if (behind[k] + 1 == behind[j]) heirs[j] = k;
    return heirs;
  }
  /// Of each call the first place in a row that it can have.
  std::vector<size_t> rows() const {
    std::vector<size_t> rows(needs_.size());
    for (size_t k = 0; k < needs_.size(); ++k)
      for (const size_t j : needs_[k]) rows[k] = std::max(rows[k], rows[j] + 1);
    return rows;
  }

 private:
  std::vector<std::vector<bool>> before_;
  std::vector<std::vector<size_t>> needs_;
};

}  // namespace

std::vector<BranchStep> branches_of(std::span<prim::RecordedCall* const> calls, size_t most) {
  std::vector<BranchStep> steps(calls.size());
  if (calls.size() > kMostOrdered || most < 2) return steps;
  Order order(calls);
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
