// Saved programs and safetensors files.
#include <memory>

#include "arete/c_api/handles_internal.h"
#include "arete/io/tensor_io.h"
#include "arete/program/program.h"

using namespace arete;
using namespace arete::c_api;

struct arete_program {
  explicit arete_program(program::Program p) : value(std::move(p)) {
    for (const program::InputInfo& info : value.inputs()) {
      std::string sizes = "[";
      for (const std::string& s : info.sizes) sizes += (sizes.size() > 1 ? ", " : "") + s;
      inputs.push_back({info.name, info.dtype, sizes + "]"});
    }
  }
  struct Input {
    std::string name;
    DType dtype;
    std::string sizes;
  };
  program::Program value;
  std::vector<Input> inputs;
};

struct arete_archive {
  io::SafetensorsFile file;
};

namespace {
std::optional<Device> wanted(const char* device) {
  return device ? std::optional(Device(device)) : std::nullopt;
}
}  // namespace

arete_status arete_program_load(const char* path, const char* device, arete_program** out) {
  return guarded([&] {
    given(out, "out") =
        new arete_program(program::Program::load(&given(path, "path"), wanted(device)));
  });
}

arete_status arete_program_parse(const void* bytes, size_t size, const char* device,
                                 arete_program** out) {
  return guarded([&] {
    const auto file = list_of(static_cast<const std::byte*>(bytes), size, "bytes");
    given(out, "out") =
        new arete_program(program::Program::parse(file, "the program", wanted(device)));
  });
}

void arete_program_free(arete_program* program) { delete program; }

arete_status arete_program_save(const arete_program* program, const char* path) {
  return guarded([&] { given(program, "program").value.save(&given(path, "path")); });
}

size_t arete_program_input_count(const arete_program* program) {
  return program ? program->inputs.size() : 0;
}
size_t arete_program_output_count(const arete_program* program) {
  return program ? program->value.output_count() : 0;
}

arete_status arete_program_input(const arete_program* program, size_t i, const char** name,
                                 arete_dtype* dtype, const char** sizes) {
  return guarded([&] {
    const auto& inputs = given(program, "program").inputs;
    ARETE_CHECK(i < inputs.size(), IndexError("", "the program has no such input")
                                       .expected("below " + std::to_string(inputs.size()))
                                       .got(std::to_string(i)));
    if (name) *name = inputs[i].name.c_str();
    if (dtype) *dtype = arete_dtype(inputs[i].dtype);
    if (sizes) *sizes = inputs[i].sizes.c_str();
  });
}

arete_status arete_program_run(const arete_program* program, const arete_tensor* const* inputs,
                               size_t n_inputs, arete_tensor** results, size_t* count) {
  return guarded([&] {
    const program::Program& p = given(program, "program").value;
    list_of(results, given(count, "count"), "results");
    give(p(tensors_of(inputs, n_inputs, "inputs")), results, count);
  });
}

arete_status arete_program_state(const arete_program* program, const char* name,
                                 arete_tensor** out) {
  return guarded([&] {
    auto& result = given(out, "out");
    const std::string wanted_name = &given(name, "name");
    for (const program::State& s : given(program, "program").value.state())
      if (s.name == wanted_name) return void(result = handle_of(s.tensor));
    throw ValueError("", "the program has no constant of this name").got("'" + wanted_name + "'");
  });
}

arete_status arete_program_to(arete_program* program, const char* device) {
  return guarded([&] { given(program, "program").value.to(Device(&given(device, "device"))); });
}

arete_status arete_safetensors_save(const char* path, const char* const* names,
                                    const arete_tensor* const* tensors, size_t count) {
  return guarded([&] {
    const auto keys = list_of(names, count, "names");
    const auto values = tensors_of(tensors, count, "tensors");
    io::NamedTensors all;
    for (size_t i = 0; i < count; ++i) all.emplace_back(&given(keys[i], "names"), values[i]);
    io::save_safetensors(&given(path, "path"), all);
  });
}

arete_status arete_safetensors_load(const char* path, arete_archive** out) {
  return guarded(
      [&] { given(out, "out") = new arete_archive{io::load_safetensors(&given(path, "path"))}; });
}

size_t arete_archive_count(const arete_archive* archive) {
  return archive ? archive->file.tensors.size() : 0;
}

const char* arete_archive_name(const arete_archive* archive, size_t i) {
  return i < arete_archive_count(archive)
             ? std::next(archive->file.tensors.begin(), ptrdiff_t(i))->first.c_str()
             : nullptr;
}

arete_status arete_archive_get(const arete_archive* archive, const char* name, arete_tensor** out) {
  return guarded([&] {
    auto& result = given(out, "out");
    const auto& tensors = given(archive, "archive").file.tensors;
    const auto found = tensors.find(&given(name, "name"));
    ARETE_CHECK(
        found != tensors.end(),
        ValueError("", "the file has no tensor of this name").got("'" + std::string(name) + "'"));
    result = handle_of(found->second);
  });
}

const char* arete_archive_metadata(const arete_archive* archive, const char* key) {
  if (!archive || !key) return nullptr;
  const auto found = archive->file.metadata.find(key);
  return found == archive->file.metadata.end() ? nullptr : found->second.c_str();
}

void arete_archive_free(arete_archive* archive) { delete archive; }
