#include "arete/backend/cuda/codegen/copy.h"

#include "arete/backend/cuda/codegen/pointwise.h"

namespace arete::cuda {

namespace {

bool by_elements(int bytes, int vector) { return vector == 1 && bytes < 16; }

}  // namespace

int transpose_tile(int bytes, int vector) { return by_elements(bytes, vector) ? 64 : 16 * vector; }

KernelSource transpose_source(int bytes, int vector) {
  const std::string type = move_code(bytes).storage[0], v = std::to_string(vector);
  const std::string name = "transpose" + std::to_string(8 * bytes) + "_x" + v;
  const std::string call = by_elements(bytes, vector)
                               ? "transpose_elements<" + type + ">(a)"
                               : "transpose_vectors<" + type + ", " + v + ">(a)";
  return {name, "#include \"copy.cuh\"\nextern \"C\" __global__ void __launch_bounds__(256) " +
                    name + "(const __grid_constant__ TransposeArgs a) {\n  " + call + ";\n}\n"};
}

KernelSource pieces_source(bool rows) {
  const std::string name = rows ? "copy_rows" : "copy_pieces", flag = rows ? "true" : "false";
  return {name,
          "#include \"copy_pieces.cuh\"\nextern \"C\" __global__ void __launch_bounds__(256) " +
              name + "(const __grid_constant__ CopyPieces a) {\n  copy_by_blocks<" + flag +
              ">(a);\n}\n"};
}

std::vector<KernelSource> copy_samples() {
  std::vector<KernelSource> all{pieces_source(false), pieces_source(true)};
  for (const int bytes : {1, 2, 4, 8, 16}) {
    for (int vector = 1; vector <= transpose_vector(bytes); vector *= 2)
      all.push_back(transpose_source(bytes, vector));
    for (const ElementCode& code : {move_code(bytes), fill_code(bytes)})
      for (int vector = 1; vector <= code.vector(); vector *= 2) {
        PointwiseShape shape{.vector = vector};
        shape.unroll = unroll_for(code, shape);
        if (vector == code.vector()) all.push_back(pointwise_source(code, shape));
        shape.kind = PointwiseShape::Kind::strided;
        shape.rank = vector == 1 ? 4 : 2;
        shape.uniform = vector > 1 && code.operands() > 1;
        shape.unroll = unroll_for(code, shape);
        all.push_back(pointwise_source(code, shape));
      }
  }
  return all;
}

}  // namespace arete::cuda
