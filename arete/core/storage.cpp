#include "arete/core/storage.h"

namespace arete {

IntrusivePtr<Storage> Storage::create(Device device, size_t bytes, Allocator* allocator) {
  void* data = allocator ? allocator->allocate(bytes) : nullptr;
  try {
    return IntrusivePtr<Storage>(
        new Storage(device, static_cast<std::byte*>(data), bytes, allocator));
  } catch (...) {
    if (allocator) allocator->deallocate(data, bytes);
    throw;
  }
}

IntrusivePtr<Storage> Storage::adopt(Device device, void* data, size_t bytes,
                                     std::function<void()> release) {
  auto owned = std::make_unique<std::function<void()>>(std::move(release));
  IntrusivePtr<Storage> s(new Storage(device, static_cast<std::byte*>(data), bytes, nullptr));
  s->release_ = std::move(owned);
  return s;
}

Storage::~Storage() {
  if (allocator_) allocator_->deallocate(data_, bytes_);
  if (release_) {
    try {
      (*release_)();
    } catch (...) {
      // A destructor has nobody to tell.
    }
  }
}

void Storage::destroy() const noexcept { delete this; }

}  // namespace arete
