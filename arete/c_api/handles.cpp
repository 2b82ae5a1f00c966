#include "arete/c_api/handles_internal.h"

#include <pthread.h>

#include <memory>
#include <new>

namespace arete::c_api {

Texts& texts() {
  // Not thread_local: Note [Thread-local memory].
  static const pthread_key_t key = [] {
    pthread_key_t made;
    if (pthread_key_create(&made, [](void* own) { delete static_cast<Texts*>(own); }))
      throw std::bad_alloc();
    return made;
  }();
  auto* own = static_cast<Texts*>(pthread_getspecific(key));
  if (!own) {
    auto fresh = std::make_unique<Texts>();
    if (pthread_setspecific(key, fresh.get())) throw std::bad_alloc();
    own = fresh.release();
  }
  return *own;
}

namespace {
void keep(const char* text) noexcept {
  try {
    texts().error = text;
  } catch (...) {
    // No memory for the text: the status has to do.
  }
}
}  // namespace

arete_status failed() noexcept {
  static_assert(int(ErrorKind::bug) + 1 == ARETE_ERROR_BUG);
  try {
    throw;
  } catch (const Error& e) {
    keep(e.what());
    return arete_status(e.kind()) + 1;
  } catch (const std::bad_alloc&) {
    keep("there is no host memory left");
    return ARETE_ERROR_OUT_OF_MEMORY;
  } catch (const std::exception& e) {
    keep(e.what());
    return ARETE_ERROR_OTHER;
  } catch (...) {
    keep("an exception that is no std::exception");
    return ARETE_ERROR_OTHER;
  }
}

std::vector<Tensor> tensors_of(const arete_tensor* const* handles, size_t count, const char* name,
                               bool gaps) {
  std::vector<Tensor> tensors;
  for (const arete_tensor* const t : list_of(handles, count, name))
    tensors.push_back(gaps && !t ? Tensor() : tensor_of(t, name));
  return tensors;
}

Device device_of(const char* text, Device otherwise) { return text ? Device(text) : otherwise; }

DType dtype_of_code(int64_t code) {
  ARETE_CHECK(code >= 0 && code < kNumDTypes,
              TypeError("", "this is the code of no dtype").got(std::to_string(code)));
  return DType(code);
}

arete_tensor* handle_of(Tensor t) { return t.defined() ? new arete_tensor{std::move(t)} : nullptr; }

void give(std::span<const Tensor> tensors, arete_tensor** results, size_t* count) {
  ARETE_CHECK(tensors.size() <= *count,
              ValueError("", "there is no room for all results")
                  .expected("room for " + std::to_string(tensors.size()) + " tensors")
                  .got(std::to_string(*count)));
  std::vector<std::unique_ptr<arete_tensor>> handles;
  for (const Tensor& t : tensors) handles.emplace_back(handle_of(t));
  for (size_t i = 0; i < handles.size(); ++i) results[i] = handles[i].release();
  *count = tensors.size();
}

}  // namespace arete::c_api

int32_t arete_c_api_version() { return ARETE_C_API_VERSION; }
const char* arete_version() { return ARETE_VERSION; }
const char* arete_last_error() {
  try {
    return arete::c_api::texts().error.c_str();
  } catch (...) {
    return "";
  }
}
