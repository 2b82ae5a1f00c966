#include "memory_format.h"

#include <string>
#include <string_view>

#include "arete/base/error.h"
#include "convert.h"

namespace arete::python {

Format format_from(PyObject* o, MemoryFormat otherwise, const char* name) {
  if (!o || o == Py_None) return {otherwise};
  if (std::string_view(Py_TYPE(o)->tp_name).ends_with("memory_format")) {
    const Ref text(checked(PyObject_Str(o)));
    const std::string s = to_text(text.get());
    if (s.ends_with(".channels_last")) return {MemoryFormat::channels_last, 4};
    if (s.ends_with(".channels_last_3d")) return {MemoryFormat::channels_last, 5};
    if (s.ends_with(".preserve_format")) return {MemoryFormat::preserve};
    if (s.ends_with(".contiguous_format")) return {MemoryFormat::contiguous};
  }
  type_error("%s(): argument 'memory_format' must be arete.memory_format, not %s", name,
             Py_TYPE(o)->tp_name);
}

void check_rank(const Format& format, int64_t rank, const char* name) {
  ARETE_CHECK(format.rank == 0 || format.rank == rank,
              ValueError(name, "required rank " + std::to_string(format.rank) +
                                   " tensor to use channels_last" +
                                   (format.rank == 5 ? "_3d" : "") + " format")
                  .argument("memory_format")
                  .got("a tensor of " + std::to_string(rank) + " dimensions"));
}

bool lies_as(const Tensor& t, const Format& format) {
  if (format.order == MemoryFormat::preserve) return true;
  if (format.rank == 0) return t.is_contiguous();
  if (t.dim() != format.rank) return false;
  // Without elements every order is the same: the strides say which one it is called.
  if (t.numel() == 0) return Shape(t.strides()) == channels_last_strides(t.sizes());
  return t.layout().is_channels_last();
}

}  // namespace arete::python
