// Any bytes must give a program, or an arete::Error: bytes as an archive, and bytes as the text in
// it, which an archive's checksums hide from mutations.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "arete/base/error.h"
#include "arete/ops/creation.h"
#include "arete/program/body_internal.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arete::program;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const Program p = Program::parse(bytes, "fuzz", arete::kCPU);
    if (p.to_string().empty()) std::abort();
  } catch (const arete::Error&) {
  }
  try {
    const std::string text(reinterpret_cast<const char*>(data), size);
    Body body = read_json(text, "fuzz");
    // What was read is written and read again as the same, but for the constants' tensors, which
    // lie in another file.
    for (size_t k = 0; k < body.constants.size(); ++k)
      body.constants[k].tensor = arete::zeros({}).requires_grad_(body.wants_gradient[k]);
    const std::string written = write_json(body);
    Body again = read_json(written, "fuzz");
    for (size_t k = 0; k < again.constants.size(); ++k)
      again.constants[k].tensor = arete::zeros({}).requires_grad_(again.wants_gradient[k]);
    if (write_json(again) != written) std::abort();
  } catch (const arete::Error& e) {
    if (e.kind() == arete::ErrorKind::bug) std::abort();
  }
  return 0;
}
