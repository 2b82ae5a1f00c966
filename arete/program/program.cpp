#include "arete/program/program.h"

#include <algorithm>
#include <set>

#include "arete/base/file.h"
#include "arete/base/text.h"
#include "arete/core/history.h"
#include "arete/core/modes.h"
#include "arete/io/tensor_io.h"
#include "arete/io/zip.h"
#include "arete/program/body_internal.h"

namespace arete::program {

namespace {

constexpr const char* kProgramFile = "program.json";
constexpr const char* kWeightsFile = "weights.safetensors";
// Of the text: a GPT-2 has some 200 kB.
constexpr uint64_t kMaxProgramSize = uint64_t{64} << 20;

// Moves what the calls make to another device.
void replace_device(Body& body, Device device) {
  for (RecordedCall& c : body.calls)
    for (Argument& a : c.args)
      if (a.kind == ops::Arg::Kind::device && a.value.device == body.device)
        a.value.device = device;
  body.device = device;
}

}  // namespace

std::vector<Tensor> Program::operator()(const std::vector<Tensor>& inputs) const {
  return run(*body_, inputs);
}

bool Program::fits(const std::vector<Tensor>& inputs) const {
  try {
    sizes_of(*body_, inputs);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void Program::save(const std::string& path) const {
  const std::string text = write_json(*body_);
  io::NamedTensors weights;
  const std::vector<std::string> names = weight_names(*body_);
  for (size_t k = 0; k < names.size(); ++k)
    weights.emplace_back(names[k], body_->constants[k].tensor);
  const io::SafetensorsImage image(weights);
  io::AtomicFile file(path);
  io::ZipWriter zip(file);
  zip.add(kProgramFile, std::as_bytes(std::span(text)));
  zip.add(kWeightsFile, image.parts());
  zip.finish();
  file.commit();
}

Program Program::parse(std::span<const std::byte> bytes, const std::string& name,
                       std::optional<Device> device) {
  const io::ZipReader zip(bytes, name);
  const auto entry = [&](const char* file) -> const io::ZipEntry& {
    const io::ZipEntry* const e = zip.find(file);
    ARETE_CHECK(e, IoError("load", name + ": this is no saved program: it has no " + file));
    return *e;
  };
  const io::ZipEntry& program = entry(kProgramFile);
  ARETE_CHECK(program.size <= kMaxProgramSize,
              IoError("load", name + ": " + kProgramFile + " has " + std::to_string(program.size) +
                                  " bytes")
                  .expected("at most " + std::to_string(kMaxProgramSize)));
  const std::vector<std::byte> text = zip.read(program);
  auto body = std::make_shared<Body>(
      read_json({reinterpret_cast<const char*>(text.data()), text.size()}, name));
  const io::SafetensorsFile weights = io::read_safetensors(zip.view(entry(kWeightsFile)), name);
  const std::vector<std::string> names = weight_names(*body);
  ARETE_CHECK(weights.tensors.size() == names.size(),
              IoError("load", name + ": the program has " + std::to_string(names.size()) +
                                  " constants, and its file of weights " +
                                  std::to_string(weights.tensors.size())));
  const Device where = device ? device->resolved() : body->device;
  for (size_t k = 0; k < names.size(); ++k) {
    const auto found = weights.tensors.find(names[k]);
    ARETE_CHECK(found != weights.tensors.end(),
                IoError("load", name + ": there is no weight " + io::quote_text(names[k])));
    State& s = body->constants[k];
    const bool requires_grad = body->wants_gradient[k];
    ARETE_CHECK(!requires_grad || is_differentiable(found->second.dtype()),
                IoError("load", name + ": the parameter " + io::quote_text(s.name) +
                                    " has a dtype without gradients"));
    s.tensor = where.is_cpu() ? found->second : found->second.to(where);
    if (requires_grad) s.tensor.requires_grad_();
  }
  if (!(where == body->device)) replace_device(*body, where);
  return Program(std::move(body));
}

Program Program::load(const std::string& path, std::optional<Device> device) {
  const io::MappedFile file(path);
  file.check_not_truncated();
  return parse(file.bytes(), path, device);
}

std::vector<InputInfo> Program::inputs() const {
  std::vector<InputInfo> all;
  for (const Input& i : body_->inputs) {
    InputInfo info{i.name, i.type.dtype, {}};
    for (const Extent& e : i.type.sizes) info.sizes.push_back(text_of(e, body_->symbols));
    all.push_back(std::move(info));
  }
  return all;
}

size_t Program::output_count() const { return body_->outputs.size(); }
std::vector<SizeInfo> Program::sizes() const { return body_->symbols; }

std::vector<State> Program::state() const {
  std::vector<State> all = body_->constants;
  for (const auto& [name, k] : body_->more_names) {
    State s = body_->constants[size_t(k)];
    s.name = name;
    all.push_back(std::move(s));
  }
  return all;
}

void Program::set_state(const std::string& name, const Tensor& t) {
  const auto found = std::ranges::find(body_->constants, name, &State::name);
  ARETE_CHECK(found != body_->constants.end(),
              ValueError("program", "there is no constant of this name").got(io::quote_text(name)));
  ARETE_CHECK(
      t.defined() && t.dtype() == found->tensor.dtype() &&
          std::ranges::equal(t.sizes(), found->tensor.sizes()),
      ValueError("program", "the tensor does not fit the constant " + io::quote_text(name)));
  found->tensor = t;
}

std::vector<std::string> Program::written() const {
  std::vector<std::string> names;
  for (const int k : body_->written) names.push_back(body_->constants[size_t(k)].name);
  return names;
}

Device Program::device() const { return body_->device; }

void Program::to(Device device) {
  device = device.resolved();
  const NoGradGuard no_grad;
  for (State& s : body_->constants) {
    if (s.tensor.device() == device) continue;
    // Whoever has the tensor sees the move, as with modules.
    const Tensor moved = s.tensor.detach().to(device);
    if (const Tensor g = s.tensor.grad(); g.defined()) {
      const Tensor gradient = g.to(device);
      s.tensor.set_grad({});
      s.tensor.impl()->storage = moved.storage();
      s.tensor.set_grad(gradient);
    }
    s.tensor.impl()->storage = moved.storage();
    s.tensor.impl()->layout = moved.layout();
  }
  replace_device(*body_, device);
}

void Program::freeze() {
  for (State& s : body_->constants) {
    s.kind = StateKind::constant;
    if (s.tensor.requires_grad()) s.tensor = s.tensor.detach();
  }
}

Program Program::clone() const {
  auto body = std::make_shared<Body>(*body_);
  const NoGradGuard no_grad;
  for (State& s : body->constants) {
    const bool requires_grad = s.tensor.requires_grad();
    s.tensor = s.tensor.detach().clone();
    if (requires_grad) s.tensor.requires_grad_();
  }
  return Program(std::move(body));
}

std::vector<std::string> Program::operators() const {
  std::set<std::string> names;
  for (const RecordedCall& c : body_->calls)
    if (c.op) names.insert(c.op->full_name());
  return {names.begin(), names.end()};
}

const std::map<std::string, std::string>& Program::metadata() const { return body_->metadata; }

void Program::set_metadata(const std::string& key, const std::string& value) {
  if (value.empty())
    body_->metadata.erase(key);
  else
    body_->metadata[key] = value;
}

}  // namespace arete::program
