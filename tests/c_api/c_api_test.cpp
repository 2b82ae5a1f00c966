#include "arete/c_api.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <thread>
#include <vector>

#include "arete/nn/linear.h"
#include "arete/ops/creation.h"
#include "arete/ops/nn.h"
#include "arete/program/program.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Free {
  void operator()(arete_tensor* t) const { arete_tensor_free(t); }
  void operator()(arete_program* p) const { arete_program_free(p); }
  void operator()(arete_archive* a) const { arete_archive_free(a); }
};
using Handle = std::unique_ptr<arete_tensor, Free>;

#define OK(call) ASSERT_EQ((call), ARETE_OK) << arete_last_error()

Handle make(const std::vector<float>& values, const std::vector<int64_t>& sizes) {
  arete_tensor* t = nullptr;
  EXPECT_EQ(
      arete_tensor_from_data(values.data(), sizes.data(), sizes.size(), ARETE_FLOAT32, nullptr, &t),
      ARETE_OK)
      << arete_last_error();
  return Handle(t);
}
std::vector<float> values_of(const Handle& t) {
  std::vector<float> v(size_t(arete_tensor_numel(t.get())));
  EXPECT_EQ(arete_tensor_read(t.get(), v.data(), v.size() * sizeof(float)), ARETE_OK)
      << arete_last_error();
  return v;
}
Handle call(const char* op, const std::vector<arete_arg>& args) {
  arete_tensor* result = nullptr;
  size_t count = 1;
  EXPECT_EQ(arete_call(op, args.data(), args.size(), &result, &count), ARETE_OK)
      << arete_last_error();
  EXPECT_EQ(count, 1u);
  return Handle(result);
}
// The status of a call that must fail, with what its text must say.
arete_status refused(const char* op, const std::vector<arete_arg>& args, const char* text) {
  arete_tensor* result = nullptr;
  size_t count = 1;
  const arete_status status = arete_call(op, args.data(), args.size(), &result, &count);
  EXPECT_THAT(arete_last_error(), HasSubstr(text));
  EXPECT_EQ(result, nullptr);
  return status;
}

TEST(CApi, TensorsSayWhatTheyAre) {
  const Handle t = make({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(arete_tensor_ndim(t.get()), 2);
  EXPECT_EQ(arete_tensor_sizes(t.get())[1], 3);
  EXPECT_EQ(arete_tensor_strides(t.get())[0], 3);
  EXPECT_EQ(arete_tensor_dtype(t.get()), ARETE_FLOAT32);
  EXPECT_EQ(arete_tensor_nbytes(t.get()), 24u);
  EXPECT_STREQ(arete_tensor_device_type(t.get()), "cpu");
  EXPECT_TRUE(arete_tensor_is_contiguous(t.get()));
  arete_tensor* other = nullptr;
  OK(arete_tensor_to(t.get(), nullptr, ARETE_INT64, 0, &other));
  const Handle integers(other);
  EXPECT_EQ(arete_tensor_dtype(other), ARETE_INT64);
  char text[8];
  size_t length = 0;
  OK(arete_tensor_text(t.get(), text, sizeof text, &length));
  EXPECT_GT(length, 7u);
  EXPECT_EQ(std::strlen(text), 7u);
  const float more[] = {6, 5, 4, 3, 2, 1};
  OK(arete_tensor_write(t.get(), more, sizeof more));
  EXPECT_THAT(values_of(call("t", {arete_of(t.get())})), ElementsAre(6, 3, 5, 2, 4, 1));
  EXPECT_EQ(arete_tensor_read(t.get(), text, sizeof text), ARETE_ERROR_VALUE);
  EXPECT_EQ(arete_dtype_size(ARETE_COMPLEX128), 16u);
  EXPECT_EQ(arete_dtype_size(99), 0u);
}

TEST(CApi, MemoryOfTheCallerIsReleasedWithItsLastTensor) {
  static int released;
  released = 0;
  float memory[] = {0, 1, 2, 3};
  const int64_t sizes[] = {2, 2}, strides[] = {1, 2};
  const auto release = [](void* context) { *static_cast<int*>(context) += 1; };
  arete_tensor* t = nullptr;
  OK(arete_tensor_from_memory(memory, sizes, strides, 2, ARETE_FLOAT32, nullptr, release, &released,
                              &t));
  Handle row = call("select", {arete_of(t), arete_int(0), arete_int(1)});
  memory[3] = 7;
  EXPECT_THAT(values_of(row), ElementsAre(1, 7));
  arete_tensor_free(t);
  EXPECT_EQ(released, 0);
  row.reset();
  EXPECT_EQ(released, 1);
  // What fails releases nothing.
  const int64_t negative[] = {-1, 2}, huge[] = {INT64_MAX, INT64_MAX};
  for (const int64_t* wrong : {negative, huge}) {
    EXPECT_EQ(arete_tensor_from_memory(memory, sizes, wrong, 2, ARETE_FLOAT32, nullptr, release,
                                       &released, &t),
              ARETE_ERROR_VALUE);
    EXPECT_EQ(arete_tensor_from_memory(memory, wrong, nullptr, 2, ARETE_FLOAT32, nullptr, release,
                                       &released, &t),
              ARETE_ERROR_VALUE);
  }
  EXPECT_EQ(released, 1);
}

TEST(CApi, CallsTakeArgumentsByPositionAndByName) {
  const Handle a = make({1, 2, 3, 4}, {2, 2}), b = make({10, 20, 30, 40}, {2, 2});
  EXPECT_THAT(values_of(call("add", {arete_of(a.get()), arete_of(b.get()),
                                     arete_named("alpha", arete_float(0.5))})),
              ElementsAre(6, 12, 18, 24));
  EXPECT_THAT(values_of(call("mul", {arete_of(a.get()), arete_int(2)})), ElementsAre(2, 4, 6, 8));
  const int64_t dims[] = {0};
  EXPECT_THAT(values_of(call("sum", {arete_of(a.get()), arete_named("dim", arete_ints(dims, 1))})),
              ElementsAre(4, 6));
  const arete_tensor* both[] = {a.get(), b.get()};
  EXPECT_EQ(arete_tensor_numel(call("cat", {arete_of_tensors(both, 2)}).get()), 8);
  EXPECT_THAT(values_of(call("absolute", {arete_of(a.get())})), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(values_of(call("add_", {arete_of(a.get()), arete_of(b.get())})),
              ElementsAre(11, 22, 33, 44));
  EXPECT_THAT(values_of(a), ElementsAre(11, 22, 33, 44));

  arete_tensor* results[2] = {};
  size_t count = 2;
  const arete_arg args[] = {arete_of(a.get()), arete_int(1)};
  OK(arete_call("max.dim", args, 2, results, &count));
  const Handle values(results[0]), positions(results[1]);
  EXPECT_EQ(count, 2u);
  EXPECT_THAT(values_of(values), ElementsAre(22, 44));
  EXPECT_EQ(arete_tensor_dtype(positions.get()), ARETE_INT64);
  count = 1;
  results[0] = nullptr;
  EXPECT_EQ(arete_call("max.dim", args, 2, results, &count), ARETE_ERROR_VALUE);
  EXPECT_EQ(results[0], nullptr);
}

TEST(CApi, WhatDoesNotFitTheSchemaIsRefused) {
  const Handle a = make({1, 2}, {2});
  const arete_arg t = arete_of(a.get());
  EXPECT_EQ(refused("no_such_operator", {t}, "no operator"), ARETE_ERROR_VALUE);
  EXPECT_EQ(refused("add", {t}, "missing"), ARETE_ERROR_VALUE);
  EXPECT_EQ(refused("exp", {t, t}, "too many"), ARETE_ERROR_VALUE);
  EXPECT_EQ(refused("add", {t, arete_string("x")}, "other. Expected: Tensor. Got: a string"),
            ARETE_ERROR_TYPE);
  EXPECT_EQ(refused("add", {t, arete_named("other", t), t}, "by position"), ARETE_ERROR_VALUE);
  EXPECT_EQ(refused("add", {t, t, arete_named("self", t)}, "twice"), ARETE_ERROR_VALUE);
  EXPECT_EQ(refused("add", {t, arete_named("beta", t)}, "'beta'"), ARETE_ERROR_VALUE);
  EXPECT_EQ(refused("add", {arete_int(1), arete_int(2)}, "tensor"), ARETE_ERROR_TYPE);
  EXPECT_EQ(refused("add", {arete_none(), t}, "missing"), ARETE_ERROR_VALUE);
  EXPECT_EQ(refused("add_", {arete_int(1), t}, "tensor"), ARETE_ERROR_TYPE);
  EXPECT_EQ(refused("cat_", {t}, "in place"), ARETE_ERROR_VALUE);
  EXPECT_EQ(refused("sum", {t, arete_ints(nullptr, 3)}, "null"), ARETE_ERROR_VALUE);
  EXPECT_EQ(refused("cat", {arete_of_tensors(nullptr, 2)}, "null"), ARETE_ERROR_VALUE);
  EXPECT_EQ(refused("zeros", {arete_ints(nullptr, 0), arete_of_dtype(77)}, "dtype"),
            ARETE_ERROR_TYPE);
  EXPECT_EQ(refused("add", {t, arete_arg_of(1234)}, "kind 1234"), ARETE_ERROR_TYPE);
  EXPECT_EQ(refused("mm", {t, t}, "mm"), ARETE_ERROR_VALUE);
  EXPECT_EQ(refused("select", {t, arete_int(5), arete_int(0)}, "Dimension"), ARETE_ERROR_INDEX);
}

TEST(CApi, NullIsRefusedEverywhere) {
  const Handle a = make({1, 2}, {2});
  arete_tensor* t = nullptr;
  size_t n = 1;
  void* p = nullptr;
  const int64_t size = 2;
  EXPECT_EQ(arete_tensor_empty(nullptr, 1, ARETE_FLOAT32, nullptr, &t), ARETE_ERROR_VALUE);
  EXPECT_EQ(arete_tensor_empty(&size, 1, ARETE_FLOAT32, nullptr, nullptr), ARETE_ERROR_VALUE);
  EXPECT_EQ(arete_tensor_empty(&size, 1, -1, nullptr, &t), ARETE_ERROR_TYPE);
  EXPECT_EQ(arete_tensor_empty(&size, 1, ARETE_FLOAT32, "abacus", &t), ARETE_ERROR_VALUE);
  EXPECT_EQ(arete_tensor_empty(&size, SIZE_MAX, ARETE_FLOAT32, nullptr, &t), ARETE_ERROR_VALUE);
  EXPECT_EQ(arete_tensor_from_data(nullptr, &size, 1, ARETE_FLOAT32, nullptr, &t),
            ARETE_ERROR_VALUE);
  EXPECT_EQ(arete_tensor_from_memory(nullptr, &size, nullptr, 1, ARETE_FLOAT32, nullptr, nullptr,
                                     nullptr, &t),
            ARETE_ERROR_VALUE);
  for (const arete_status status : {arete_tensor_share(nullptr, &t),
                                    arete_tensor_share(a.get(), nullptr),
                                    arete_tensor_read(nullptr, nullptr, 0),
                                    arete_tensor_read(a.get(), nullptr, 8),
                                    arete_tensor_write(nullptr, nullptr, 0),
                                    arete_tensor_write(a.get(), nullptr, 8),
                                    arete_tensor_item(nullptr, nullptr),
                                    arete_tensor_item_int(nullptr, nullptr),
                                    arete_tensor_text(nullptr, nullptr, 0, nullptr),
                                    arete_tensor_text(a.get(), nullptr, 3, nullptr),
                                    arete_tensor_to(nullptr, nullptr, -1, 0, &t),
                                    arete_tensor_data(nullptr, &p),
                                    arete_tensor_to_dlpack(nullptr, nullptr),
                                    arete_tensor_from_dlpack(nullptr, &t),
                                    arete_tensor_from_dlpack_versioned(nullptr, &t),
                                    arete_call(nullptr, nullptr, 0, &t, &n),
                                    arete_call("add", nullptr, 2, &t, &n),
                                    arete_call("add", nullptr, 0, &t, nullptr),
                                    arete_call("add", nullptr, 0, nullptr, &n),
                                    arete_operator_schema(nullptr, nullptr),
                                    arete_operator_names(nullptr, nullptr),
                                    arete_tensor_set_requires_grad(nullptr, 1),
                                    arete_tensor_backward(nullptr, nullptr, 0, 0),
                                    arete_tensor_grad(nullptr, &t),
                                    arete_tensor_set_grad(nullptr, nullptr),
                                    arete_tensor_detach(nullptr, &t),
                                    arete_grad(nullptr, 1, nullptr, 1, nullptr, 0, 0, 0, &t),
                                    arete_stream_synchronize(nullptr),
                                    arete_stream_set_current(nullptr),
                                    arete_stream_wait(nullptr, nullptr),
                                    arete_stream_native(nullptr, &p),
                                    arete_program_load(nullptr, nullptr, nullptr),
                                    arete_program_save(nullptr, nullptr),
                                    arete_program_parse(nullptr, 3, nullptr, nullptr),
                                    arete_program_input(nullptr, 0, nullptr, nullptr, nullptr),
                                    arete_program_run(nullptr, nullptr, 0, &t, &n),
                                    arete_program_state(nullptr, "x", &t),
                                    arete_program_to(nullptr, "cpu"),
                                    arete_safetensors_save(nullptr, nullptr, nullptr, 0),
                                    arete_safetensors_load(nullptr, nullptr),
                                    arete_archive_get(nullptr, "x", &t)})
    EXPECT_EQ(status, ARETE_ERROR_VALUE);
  EXPECT_EQ(t, nullptr);
  EXPECT_EQ(arete_tensor_dtype(nullptr), -1);
  EXPECT_EQ(arete_tensor_sizes(nullptr), nullptr);
  EXPECT_EQ(arete_tensor_nbytes(nullptr), 0u);
  EXPECT_EQ(arete_archive_name(nullptr, 0), nullptr);
  EXPECT_EQ(arete_archive_metadata(nullptr, "x"), nullptr);
  EXPECT_EQ(arete_program_input_count(nullptr), 0u);
  arete_tensor_free(nullptr), arete_stream_free(nullptr);
  arete_program_free(nullptr), arete_archive_free(nullptr);
}

TEST(CApi, ErrorsAreOfTheThread) {
  arete_tensor* t = nullptr;
  EXPECT_EQ(arete_tensor_empty(nullptr, 1, ARETE_FLOAT32, nullptr, &t), ARETE_ERROR_VALUE);
  std::string other = "none";
  std::thread([&] { other = arete_last_error(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_THAT(arete_last_error(), HasSubstr("'sizes' is null"));
}

TEST(CApi, Differentiates) {
  const Handle x = make({1, 2, 3}, {3});
  OK(arete_tensor_set_requires_grad(x.get(), 1));
  const Handle y =
      call("sum", {arete_of(call("mul", {arete_of(x.get()), arete_of(x.get())}).get())});
  EXPECT_TRUE(arete_tensor_requires_grad(y.get()));
  const arete_tensor *outputs[] = {y.get()}, *inputs[] = {x.get()};
  arete_tensor* g = nullptr;
  OK(arete_grad(outputs, 1, inputs, 1, nullptr, 1, 0, 0, &g));
  EXPECT_THAT(values_of(Handle(g)), ElementsAre(2, 4, 6));
  OK(arete_tensor_backward(y.get(), nullptr, 0, 0));
  OK(arete_tensor_grad(x.get(), &g));
  EXPECT_THAT(values_of(Handle(g)), ElementsAre(2, 4, 6));
  OK(arete_tensor_set_grad(x.get(), nullptr));
  OK(arete_tensor_grad(x.get(), &g));
  EXPECT_EQ(g, nullptr);
  EXPECT_EQ(arete_tensor_backward(y.get(), nullptr, 0, 0), ARETE_ERROR_AUTOGRAD);
  EXPECT_EQ(refused("add_", {arete_of(x.get()), arete_int(1)}, "leaf"), ARETE_ERROR_AUTOGRAD);

  const Handle apart = make({1}, {1});
  OK(arete_tensor_set_requires_grad(apart.get(), 1));
  const Handle z = call("sum", {arete_of(call("exp", {arete_of(x.get())}).get())});
  const arete_tensor *from[] = {z.get()}, *unused[] = {apart.get()};
  g = apart.get();
  OK(arete_grad(from, 1, unused, 1, nullptr, 1, 0, 1, &g));
  EXPECT_EQ(g, nullptr);
  EXPECT_EQ(arete_grad(from, 1, unused, 1, nullptr, 1, 0, 0, &g), ARETE_ERROR_AUTOGRAD);

  int32_t before = 0;
  OK(arete_set_grad_enabled(0, &before));
  EXPECT_EQ(before, 1);
  EXPECT_FALSE(arete_tensor_requires_grad(call("exp", {arete_of(x.get())}).get()));
  OK(arete_set_grad_enabled(before, nullptr));
}

TEST(CApi, DLPackGoesBothWays) {
  const Handle t = make({1, 2, 3, 4, 5, 6}, {2, 3});
  const Handle turned = call("t", {arete_of(t.get())});
  DLManagedTensor* managed = nullptr;
  arete_tensor* back = nullptr;
  OK(arete_tensor_to_dlpack(turned.get(), &managed));
  OK(arete_tensor_from_dlpack(managed, &back));
  const Handle shared(back);
  EXPECT_THAT(values_of(shared), ElementsAre(1, 4, 2, 5, 3, 6));
  void *address = nullptr, *other = nullptr;
  OK(arete_tensor_data(t.get(), &address));
  OK(arete_tensor_data(back, &other));
  EXPECT_EQ(address, other);
  DLManagedTensorVersioned* versioned = nullptr;
  OK(arete_tensor_to_dlpack_versioned(turned.get(), &versioned));
  OK(arete_tensor_from_dlpack_versioned(versioned, &back));
  EXPECT_THAT(values_of(Handle(back)), ElementsAre(1, 4, 2, 5, 3, 6));
  OK(arete_tensor_set_requires_grad(t.get(), 1));
  EXPECT_EQ(arete_tensor_to_dlpack(t.get(), &managed), ARETE_ERROR_AUTOGRAD);
}

// The structures as dlpack.h has them.
struct ForeignDLTensor {
  void* data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
  void* manager_ctx;
  void (*deleter)(ForeignDLTensor*);
};

TEST(CApi, ForeignDLPackIsChecked) {
  float memory[] = {1, 2, 3, 4};
  int64_t shape[] = {2, 2}, strides[] = {2, 1};
  static int deleted;
  deleted = 0;
  ForeignDLTensor good{memory, 1,     0,       1, 2,       32,
                       1,      shape, nullptr, 8, nullptr, [](ForeignDLTensor*) { ++deleted; }};
  const auto take = [](ForeignDLTensor& d) {
    arete_tensor* t = nullptr;
    const arete_status s = arete_tensor_from_dlpack(reinterpret_cast<DLManagedTensor*>(&d), &t);
    const Handle owner(t);
    if (t) {
      EXPECT_THAT(values_of(owner), ElementsAre(3, 4));
    }
    return s;
  };
  EXPECT_EQ(take(good), ARETE_OK);
  EXPECT_EQ(deleted, 1);
  const auto wrong = [&](auto change) {
    ForeignDLTensor d = good;
    change(d);
    return take(d);
  };
  EXPECT_EQ(wrong([](auto& d) { d.lanes = 4; }), ARETE_ERROR_TYPE);
  EXPECT_EQ(wrong([](auto& d) { d.bits = 24; }), ARETE_ERROR_TYPE);
  EXPECT_EQ(wrong([](auto& d) { d.device_type = 7; }), ARETE_ERROR_TYPE);
  EXPECT_EQ(wrong([](auto& d) { d.device_type = 2, d.device_id = 1000; }), ARETE_ERROR_DEVICE);
  EXPECT_EQ(wrong([](auto& d) { d.ndim = -1; }), ARETE_ERROR_VALUE);
  EXPECT_EQ(wrong([](auto& d) { d.shape = nullptr; }), ARETE_ERROR_VALUE);
  EXPECT_EQ(wrong([](auto& d) { d.data = nullptr; }), ARETE_ERROR_VALUE);
  shape[0] = -5;
  EXPECT_EQ(take(good), ARETE_ERROR_VALUE);
  shape[0] = 2, strides[0] = -1, good.strides = strides;
  EXPECT_EQ(take(good), ARETE_ERROR_VALUE);
  EXPECT_EQ(deleted, 1);
}

TEST(CApi, RunsSavedPrograms) {
  using namespace arete;
  const std::string path = testing::TempDir() + "c_api.arete";
  nn::Linear net(3, 2);
  program::RecordOptions options;
  options.dynamic = {{"batch", 0, 0}};
  for (const auto& [name, t] : net.named_parameters()) options.state.push_back({name, t});
  program::Program::record([&](const std::vector<Tensor>& x) { return std::vector{net(x[0])}; },
                           {ones({4, 3})}, options)
      .save(path);

  arete_program* loaded = nullptr;
  OK(arete_program_load(path.c_str(), nullptr, &loaded));
  const std::unique_ptr<arete_program, Free> program(loaded);
  ASSERT_EQ(arete_program_input_count(loaded), 1u);
  EXPECT_EQ(arete_program_output_count(loaded), 1u);
  const char *name = nullptr, *sizes = nullptr;
  arete_dtype dtype = -1;
  OK(arete_program_input(loaded, 0, &name, &dtype, &sizes));
  EXPECT_STREQ(sizes, "[batch, 3]");
  EXPECT_EQ(dtype, ARETE_FLOAT32);
  EXPECT_EQ(arete_program_input(loaded, 1, &name, nullptr, nullptr), ARETE_ERROR_INDEX);

  const Handle x = make({1, 2, 3, 4, 5, 6}, {2, 3});
  const arete_tensor* inputs[] = {x.get()};
  arete_tensor* y = nullptr;
  size_t count = 1;
  OK(arete_program_run(loaded, inputs, 1, &y, &count));
  const Handle result(y);
  const std::vector<float> expected =
      net(tensor(std::vector<float>{1, 2, 3, 4, 5, 6}).view({2, 3})).to_vector<float>();
  EXPECT_EQ(values_of(result), expected);
  arete_tensor* weight = nullptr;
  OK(arete_program_state(loaded, "weight", &weight));
  EXPECT_EQ(values_of(Handle(weight)), net.weight.to_vector<float>());
  EXPECT_EQ(arete_program_state(loaded, "height", &weight), ARETE_ERROR_VALUE);
  EXPECT_EQ(arete_program_run(loaded, inputs, 0, &y, &count), ARETE_ERROR_VALUE);
  std::ofstream(path) << "nothing of the kind";
  EXPECT_EQ(arete_program_load(path.c_str(), nullptr, &loaded), ARETE_ERROR_IO);
  EXPECT_EQ(arete_program_parse("PK", 2, nullptr, &loaded), ARETE_ERROR_IO);
  std::filesystem::remove(path);
  EXPECT_EQ(arete_program_load(path.c_str(), nullptr, &loaded), ARETE_ERROR_IO);
}

TEST(CApi, SavesAndLoadsTensors) {
  const std::string path = testing::TempDir() + "c_api.safetensors";
  const Handle a = make({1, 2}, {2}), b = make({3}, {1});
  const char* names[] = {"b", "a"};
  const arete_tensor* tensors[] = {b.get(), a.get()};
  OK(arete_safetensors_save(path.c_str(), names, tensors, 2));
  arete_archive* file = nullptr;
  OK(arete_safetensors_load(path.c_str(), &file));
  const std::unique_ptr<arete_archive, Free> archive(file);
  EXPECT_EQ(arete_archive_count(file), 2u);
  EXPECT_STREQ(arete_archive_name(file, 0), "a");
  EXPECT_EQ(arete_archive_name(file, 2), nullptr);
  arete_tensor* t = nullptr;
  OK(arete_archive_get(file, "a", &t));
  EXPECT_THAT(values_of(Handle(t)), ElementsAre(1, 2));
  EXPECT_EQ(arete_archive_get(file, "c", &t), ARETE_ERROR_VALUE);
  EXPECT_EQ(arete_archive_metadata(file, "c"), nullptr);
  names[0] = "a";
  EXPECT_EQ(arete_safetensors_save(path.c_str(), names, tensors, 2), ARETE_ERROR_VALUE);
  std::filesystem::remove(path);
  EXPECT_EQ(arete_safetensors_load(path.c_str(), &file), ARETE_ERROR_IO);
}

TEST(CApi, WithoutGpuSaysWhy) {
  if (arete_cuda_device_count()) GTEST_SKIP() << "there is a GPU";
  EXPECT_STRNE(arete_cuda_unavailable_reason(), "");
  arete_stream* stream = nullptr;
  EXPECT_EQ(arete_stream_create(-1, 0, &stream), ARETE_ERROR_DEVICE);
  EXPECT_EQ(arete_cuda_synchronize(-1), ARETE_ERROR_DEVICE);
  arete_tensor* t = nullptr;
  EXPECT_EQ(arete_tensor_empty(nullptr, 0, ARETE_FLOAT32, "cuda", &t), ARETE_ERROR_DEVICE);
}

TEST(CApi, StreamsOrderWork) {
  if (!arete_cuda_device_count()) GTEST_SKIP() << arete_cuda_unavailable_reason();
  arete_stream *side = nullptr, *main = nullptr;
  OK(arete_stream_current(-1, &main));
  OK(arete_stream_create(-1, 0, &side));
  const int64_t sizes[] = {1 << 20};
  OK(arete_stream_set_current(side));
  const Handle a = call("full", {arete_ints(sizes, 1), arete_float(3),
                                 arete_named("device", arete_of_device("cuda"))});
  OK(arete_stream_set_current(main));
  OK(arete_stream_wait(main, side));
  double sum = 0;
  OK(arete_tensor_item(call("sum", {arete_of(a.get())}).get(), &sum));
  EXPECT_EQ(sum, 3.0 * (1 << 20));
  void* native = nullptr;
  OK(arete_stream_native(side, &native));
  EXPECT_NE(native, nullptr);
  OK(arete_stream_synchronize(side));
  arete_stream_free(side), arete_stream_free(main);
}

// The interface is stable: each function that the header declares is there under its version.
TEST(CApi, SymbolsCarryTheirVersion) {
  std::ifstream header(std::string(ARETE_TEST_DIR) + "/../arete/c_api.h");
  if (!header) GTEST_SKIP() << "the source tree is not here";
  Dl_info library{};
  ASSERT_TRUE(dladdr(reinterpret_cast<void*>(&arete_call), &library));
  if (!std::strstr(library.dli_fname, "libarete.so")) GTEST_SKIP() << "linked statically";
  const std::string text{std::istreambuf_iterator<char>(header), {}};
  static const std::regex function(R"(\n[a-z][\w\* ]*?\b(arete_\w+)\([^)]*\);)");
  std::set<std::string> names;
  for (std::sregex_iterator i(text.begin(), text.end(), function), end; i != end; ++i)
    names.insert((*i)[1]);
  EXPECT_EQ(names.count("arete_call"), 1u);
  EXPECT_GT(names.size(), 60u);
  for (const std::string& name : names)
    EXPECT_TRUE(dlvsym(RTLD_DEFAULT, name.c_str(), "ARETE_C_1")) << name;
}

// Every operator is called with arguments that somebody drew: each call succeeds or says what is
// wrong, and there is no third way.
TEST(CApi, ArgumentsDrawnAtRandomDoNoHarm) {
  const char* const* names = nullptr;
  size_t count = 0;
  OK(arete_operator_names(&names, &count));
  ASSERT_GT(count, 500u);
  std::mt19937 random(7);
  const auto below = [&](unsigned n) { return unsigned(random() % n); };
  std::vector<Handle> tensors;
  tensors.push_back(make({}, {0}));
  tensors.push_back(make({1}, {}));
  tensors.push_back(make({1, 2, 3}, {3}));
  tensors.push_back(make({1, 2, 3, 4, 5, 6}, {2, 3}));
  tensors.push_back(make(std::vector<float>(16, 2), {1, 2, 2, 4}));
  for (const arete_dtype t : {ARETE_INT64, ARETE_BOOL, ARETE_COMPLEX64, ARETE_BFLOAT16}) {
    arete_tensor* converted = nullptr;
    OK(arete_tensor_to(tensors[3].get(), nullptr, t, 0, &converted));
    tensors.emplace_back(converted);
  }
  const arete_tensor* list[4];
  int64_t ints[4];
  double reals[4];
  const auto draw = [&](const std::string& type) {
    const auto tensor = [&] { return tensors[below(unsigned(tensors.size()))].get(); };
    // Mostly what the schema says, so that the operator itself is met.
    const bool any = below(8) == 0;
    const unsigned pick = any ? below(12) : 0;
    if (any ? pick == 1 : type.starts_with("Tensor[")) {
      for (auto& t : list) t = below(9) ? tensor() : nullptr;
      return arete_of_tensors(list, below(5));
    }
    if (any ? pick == 2 : type.starts_with("Tensor"))
      return arete_of(below(20) ? tensor() : nullptr);
    if (any ? pick == 3 : type.starts_with("int[")) {
      for (auto& i : ints) i = int64_t(below(7)) - 2;
      return arete_ints(ints, below(5));
    }
    if (any ? pick == 4 : type.starts_with("float[")) {
      for (auto& r : reals) r = below(100) / 20.0 - 1;
      return arete_floats(reals, below(5));
    }
    if (any ? pick == 5 : type.starts_with("bool")) return arete_bool(int(below(2)));
    if (any ? pick == 6 : type.starts_with("int")) return arete_int(int64_t(below(9)) - 3);
    if (any ? pick == 7 : type.starts_with("float")) return arete_float(below(100) / 25.0 - 1);
    if (any ? pick == 8 : type.starts_with("dtype")) return arete_of_dtype(int(below(16)) - 1);
    if (any ? pick == 9 : type.starts_with("device"))
      return arete_of_device(below(2) ? "cpu" : "meta");
    if (any ? pick == 10 : type.starts_with("str"))
      return arete_string(below(2) ? "mean" : "reflect");
    if (any ? pick == 11 : type.starts_with("Scalar"))
      return below(2) ? arete_float(0.5) : arete_complex(1, -1);
    return arete_none();
  };
  int done = 0;
  for (size_t k = 0; k < count; ++k) {
    const char* schema = nullptr;
    OK(arete_operator_schema(names[k], &schema));
    std::vector<std::string> types;
    std::string text(schema);
    text = text.substr(0, text.find("->"));
    static const std::regex type(
        R"((Tensor|int|float|bool|str|Scalar|dtype|device|Generator)(\[\d*\])?\?? )");
    for (std::sregex_iterator i(text.begin(), text.end(), type), end; i != end; ++i)
      types.push_back(i->str());
    for (int round = 0; round < 20; ++round) {
      std::vector<arete_arg> args;
      for (const std::string& t : types) args.push_back(draw(t));
      if (below(6) == 0 && !args.empty()) args.pop_back();
      const std::string op = std::string(names[k]) + (below(5) ? "" : "_");
      arete_tensor* results[8] = {};
      size_t n = 8;
      const arete_status status = arete_call(op.c_str(), args.data(), args.size(), results, &n);
      done += status == ARETE_OK;
      EXPECT_NE(status, ARETE_ERROR_BUG) << op << ": " << arete_last_error();
      EXPECT_NE(status, ARETE_ERROR_OTHER) << op << ": " << arete_last_error();
      for (arete_tensor* t : results) arete_tensor_free(t);
    }
  }
  EXPECT_GT(done, 500);
}

}  // namespace
