#include <algorithm>
#include <iterator>
#include <map>

#include "arete/compile/graph_internal.h"
#include "arete/compile/stand_in_internal.h"
#include "arete/prim/positions.h"

namespace arete::compile {

using prim::Access;
using prim::Primitive;
using prim::View;

bool collide(const std::vector<Use>& a, const std::vector<Use>& b) {
  for (const Use& x : a)
    for (const Use& y : b)
      if (collide(x, y)) return true;
  return false;
}

bool refuses_values(Primitive p) {
  switch (p) {
    case Primitive::gather:
    case Primitive::scatter:
    case Primitive::compact:
    case Primitive::take_rows:
    case Primitive::add_rows:
    case Primitive::linalg:
      return true;
    default:
      return p == prim::kEffect;  // other processes wait for it
  }
}

bool may_refuse(const prim::RecordedCall& call) {
  return call.device().is_cpu() && refuses_values(call.primitive());
}

bool is_bare(const prim::GemmArgs& g) {
  return g.beta == 0 && !g.aux && !g.a_sum && !g.a_scale && !g.b_scale && !g.has_programs() &&
         g.activation == prim::Activation::none && !g.differentiate;
}

std::vector<bool> zero_fills(const std::vector<std::unique_ptr<prim::RecordedCall>>& calls) {
  std::vector<bool> zeros;
  for (const auto& call : calls)
    zeros.push_back(call->primitive() == Primitive::fill &&
                    is_zero(*static_cast<const prim::FillArgs*>(call->args())));
  return zeros;
}

size_t bytes_of(const View& view) {
  size_t bytes = size_of(view.dtype);
  for (size_t d = 0; d < view.sizes.size(); ++d)
    if (view.sizes[d] == 0 || view.strides[d] != 0) bytes *= size_t(view.sizes[d]);
  return bytes;
}

size_t bytes_of(const prim::RecordedCall& call) {
  size_t bytes = 0;
  const_cast<prim::RecordedCall&>(call).for_each_operand(
      [&](View& v, Access) { bytes += bytes_of(v); });
  return bytes;
}

std::vector<Use> uses_of(prim::RecordedCall& call, Buffers& buffers) {
  std::vector<Use> uses;
  call.for_each_operand([&](View& v, Access access) { buffers.add_use(uses, v, access); });
  return uses;
}

Buffers::Buffers(std::vector<UsedMemory> memory) {
  for (UsedMemory& m : memory) {
    by_storage_[m.storage.get()] = int(buffers_.size());
    if (m.storage->data()) by_address_.push_back({m.storage->data(), int(buffers_.size())});
    buffers_.push_back({std::move(m.storage), m.temporary});
  }
  std::ranges::sort(by_address_);
}

StoragePtr Buffers::add_temporary(Device device, size_t bytes) {
  const StoragePtr memory = Storage::promise(device, bytes, stand_in(bytes));
  by_storage_[memory.get()] = int(buffers_.size());
  buffers_.push_back({memory, true});
  return memory;
}

int Buffers::of(const View& view) {
  if (view.numel() == 0) return -1;
  if (const auto found = by_storage_.find(view.storage); found != by_storage_.end())
    return found->second;
  // Scratch memory has no storage that its views name.
  auto next = std::ranges::upper_bound(by_address_, static_cast<const std::byte*>(view.data), {},
                                       [](const auto& entry) { return entry.first; });
  if (next != by_address_.begin()) {
    const Buffer& before = buffers_[size_t((--next)->second)];
    if (view.data < before.storage->data() + before.storage->bytes()) return next->second;
  }
  if (unknown_ < 0) {
    unknown_ = int(buffers_.size());
    buffers_.push_back({});
  }
  return unknown_;
}

void Buffers::add_use(std::vector<Use>& uses, const View& view, Access access) {
  const int buffer = of(view);
  if (buffer < 0) return;
  const StoragePtr& storage = buffers_[size_t(buffer)].storage;
  if (!storage && !prim::are_kept_numbers(view.data)) {  // any of it
    uses.push_back({buffer, 0, INT64_MAX, access});
    return;
  }
  const auto [first, last] = extent_of(view);
  const int64_t bytes = view.numel() * int64_t(size_of(view.dtype));
  uses.push_back({buffer, first, last, access, last - first == bytes, bytes});
}

namespace {
// What a call writes, without gaps. What it writes here and there it has written as a whole where
// that is all: outputs of one call share no element.
std::vector<Use> writes_of(const std::vector<Use>& uses) {
  std::vector<Use> whole, parts;  // one for each buffer
  for (const Use& u : uses) {
    if (u.access == Access::read) continue;
    if (u.is_whole) {
      whole.push_back(u);
      continue;
    }
    const auto its = std::ranges::find(parts, u.buffer, &Use::buffer);
    if (its == parts.end()) {
      parts.push_back(u);
      continue;
    }
    its->first = std::min(its->first, u.first);
    its->last = std::max(its->last, u.last);
    its->bytes += u.bytes;
  }
  for (const Use& p : parts)
    if (p.bytes == p.last - p.first) whole.push_back(p);
  return whole;
}
}  // namespace

void Buffers::look_for_host_writes(const std::vector<std::vector<Use>>& calls) {
  std::vector<std::map<int64_t, int64_t>> written(buffers_.size());  // runs of addresses
  for (const std::vector<Use>& uses : calls) {
    for (const Use& u : uses) {
      if (u.access == Access::write) continue;
      const auto& runs = written[size_t(u.buffer)];
      const auto next = runs.upper_bound(u.first);
      if (next == runs.begin() || std::prev(next)->second < u.last)
        buffers_[size_t(u.buffer)].temporary = false;
    }
    for (Use u : writes_of(uses)) {
      auto& runs = written[size_t(u.buffer)];
      auto next = runs.upper_bound(u.first);
      if (next != runs.begin() && std::prev(next)->second >= u.first) {
        --next;
        u.first = next->first;
      }
      while (next != runs.end() && next->first <= u.last) {
        u.last = std::max(u.last, next->second);
        next = runs.erase(next);
      }
      runs[u.first] = u.last;
    }
  }
}

std::vector<Life> lives_of(const Steps& steps, Buffers& buffers) {
  std::vector<Life> lives(size_t(buffers.size()));
  for (size_t k = 0; k < steps.size(); ++k)
    steps[k]->for_each_operand([&](View& v, Access) {
      const int b = buffers.of(v);
      if (b < 0 || !buffers[b].storage) return;
      const auto base = reinterpret_cast<intptr_t>(buffers[b].storage->data());
      Life& life = lives[size_t(b)];
      life = {std::min(life.first, k), k, std::max(life.bytes, size_t(extent_of(v).second - base))};
    });
  return lives;
}

std::vector<size_t> live_bytes(const Steps& steps, const std::vector<Life>& lives,
                               Buffers& buffers) {
  std::vector<size_t> bytes(steps.size() + 1);  // first as changes, which may wrap around
  for (size_t b = 0; b < lives.size(); ++b) {
    if (!buffers[int(b)].temporary || !lives[b].is_used()) continue;
    bytes[lives[b].first] += lives[b].bytes;
    bytes[lives[b].last + 1] -= lives[b].bytes;
  }
  for (size_t k = 1; k < bytes.size(); ++k) bytes[k] += bytes[k - 1];
  bytes.pop_back();
  return bytes;
}

size_t peak_of(const Steps& steps, Buffers& buffers) {
  const std::vector<size_t> bytes = live_bytes(steps, lives_of(steps, buffers), buffers);
  return bytes.empty() ? 0 : *std::ranges::max_element(bytes);
}

}  // namespace arete::compile
