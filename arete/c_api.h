/* The interface for C, and for every language that calls C: tensors, operators by their names,
 * differentiation, GPUs, saved programs, files, DLPack. docs/c_api.md shows how it is used.
 *
 * It is stable: what stands here keeps its meaning and its layout in memory; new things get new
 * names, and arete_c_api_version() says how far a library is. The symbols carry the version node
 * ARETE_C_1.
 *
 * Functions that can fail return a status, ARETE_OK or the kind of error, and leave what they would
 * give untouched then; arete_last_error() has the text. No C++ exception leaves them, a null
 * pointer where there must be something is an ARETE_ERROR_VALUE. Lists are an address and a count;
 * the address may be null where the count is 0. Texts end with a zero. Everything that is given out
 * is the caller's to free, unless it is said to live as long as something else.
 *
 * Handles may be used by one thread at a time, different ones by several. Freeing a null handle
 * does nothing. */
#ifndef ARETE_C_API_H
#define ARETE_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ARETE_C_API_VERSION 1

typedef struct arete_tensor arete_tensor;
typedef struct arete_stream arete_stream;
typedef struct arete_program arete_program;
typedef struct arete_archive arete_archive;
/* Of dlpack.h. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

typedef int32_t arete_status;
enum {
  ARETE_OK = 0,
  ARETE_ERROR_VALUE = 1,           /* an argument has a wrong value or shape */
  ARETE_ERROR_TYPE = 2,            /* an argument has a wrong type or dtype */
  ARETE_ERROR_INDEX = 3,           /* an index or dimension is out of range */
  ARETE_ERROR_DEVICE = 4,          /* different devices, or one that is not there */
  ARETE_ERROR_AUTOGRAD = 5,        /* a rule of differentiation is broken */
  ARETE_ERROR_IO = 6,              /* a file cannot be read or written, or holds something else */
  ARETE_ERROR_NOT_IMPLEMENTED = 7, /* a combination that Arete does not support */
  ARETE_ERROR_OUT_OF_MEMORY = 8,
  ARETE_ERROR_BUG = 9,   /* a fault of Arete: please report it */
  ARETE_ERROR_OTHER = 10 /* an exception that is none of Arete's */
};

typedef int32_t arete_dtype;
enum {
  ARETE_UINT8 = 0,
  ARETE_INT8 = 1,
  ARETE_INT16 = 2,
  ARETE_INT32 = 3,
  ARETE_INT64 = 4,
  ARETE_FLOAT16 = 5,
  ARETE_FLOAT32 = 6,
  ARETE_FLOAT64 = 7,
  ARETE_COMPLEX64 = 8,
  ARETE_COMPLEX128 = 9,
  ARETE_BOOL = 10,
  ARETE_BFLOAT16 = 11,
  ARETE_FLOAT8_E4M3FN = 12,
  ARETE_FLOAT8_E5M2 = 13,
  ARETE_UINT16 = 14,
  ARETE_UINT32 = 15,
  ARETE_UINT64 = 16
};

/* ARETE_C_API_VERSION of the library, and "0.1.0". */
int32_t arete_c_api_version(void);
const char* arete_version(void);
/* What went wrong in the calling thread's last call that failed; "" if none did. It lives until the
 * next one that fails. */
const char* arete_last_error(void);

/* ---- tensors. A device is "cpu", "cuda" (the current GPU), "cuda:1" or "meta"; null: "cpu". */

/* Row-major, without values. */
arete_status arete_tensor_empty(const int64_t* sizes, size_t ndim, arete_dtype dtype,
                                const char* device, arete_tensor** out);
/* A copy of row-major values on the host. */
arete_status arete_tensor_from_data(const void* values, const int64_t* sizes, size_t ndim,
                                    arete_dtype dtype, const char* device, arete_tensor** out);
/* Over memory of the caller on that device. `strides` are in elements and not negative; null:
 * row-major. `release`, which may be null, is called with `context` when the last tensor over the
 * memory is gone, by whatever thread; after an error it is not. */
arete_status arete_tensor_from_memory(void* data, const int64_t* sizes, const int64_t* strides,
                                      size_t ndim, arete_dtype dtype, const char* device,
                                      void (*release)(void* context), void* context,
                                      arete_tensor** out);
/* Another handle of the same tensor. */
arete_status arete_tensor_share(const arete_tensor* tensor, arete_tensor** out);
void arete_tensor_free(arete_tensor* tensor);

/* Copies all elements to the host, row-major, or from there; waits for them. `bytes` must be
 * arete_tensor_nbytes(). Writing is a call in place. */
arete_status arete_tensor_read(const arete_tensor* tensor, void* values, size_t bytes);
arete_status arete_tensor_write(arete_tensor* tensor, const void* values, size_t bytes);
/* The value of a tensor with one element. */
arete_status arete_tensor_item(const arete_tensor* tensor, double* out);
arete_status arete_tensor_item_int(const arete_tensor* tensor, int64_t* out);
/* As PyTorch prints it: at most `capacity` bytes with the zero. `length`, which may be null, gets
 * that of the whole text without it. */
arete_status arete_tensor_text(const arete_tensor* tensor, char* text, size_t capacity,
                               size_t* length);
/* On another device, of another dtype (null, -1: as it is); a tensor that is so already is the
 * result itself. With non_blocking a copy between pinned memory and a GPU is not waited for. */
arete_status arete_tensor_to(const arete_tensor* tensor, const char* device, arete_dtype dtype,
                             int32_t non_blocking, arete_tensor** out);

/* What it is; -1, 0 or null for a null handle. Sizes and strides live as long as the handle, and
 * change where a call in place changes the shape. */
arete_dtype arete_tensor_dtype(const arete_tensor* tensor);
int64_t arete_tensor_ndim(const arete_tensor* tensor);
const int64_t* arete_tensor_sizes(const arete_tensor* tensor);
const int64_t* arete_tensor_strides(const arete_tensor* tensor);
int64_t arete_tensor_numel(const arete_tensor* tensor);
size_t arete_tensor_nbytes(const arete_tensor* tensor);
int32_t arete_tensor_is_contiguous(const arete_tensor* tensor);
/* "cpu", "cuda", "meta", and the GPU's number (else 0). */
const char* arete_tensor_device_type(const arete_tensor* tensor);
int32_t arete_tensor_device_index(const arete_tensor* tensor);
/* The address of the first element, null for empty and meta tensors. On the host everything that
 * writes it has been waited for; on a GPU it is current on the current stream. */
arete_status arete_tensor_data(const arete_tensor* tensor, void** out);
/* Bytes of an element; 0 for what is no dtype. */
size_t arete_dtype_size(arete_dtype dtype);

/* The memory for somebody else, who calls the structure's deleter; and a tensor over somebody's
 * memory, which takes the structure over unless it fails; memory that its flags call read-only must
 * not be written to by the caller. */
arete_status arete_tensor_to_dlpack(const arete_tensor* tensor, struct DLManagedTensor** out);
arete_status arete_tensor_to_dlpack_versioned(const arete_tensor* tensor,
                                              struct DLManagedTensorVersioned** out);
arete_status arete_tensor_from_dlpack(struct DLManagedTensor* managed, arete_tensor** out);
arete_status arete_tensor_from_dlpack_versioned(struct DLManagedTensorVersioned* managed,
                                                arete_tensor** out);

/* ---- operators */

enum {
  ARETE_ARG_NONE = 0,
  ARETE_ARG_TENSOR = 1,  /* as.tensor; null is ARETE_ARG_NONE */
  ARETE_ARG_TENSORS = 2, /* as.list of arete_tensor* */
  ARETE_ARG_BOOL = 3,    /* as.integer */
  ARETE_ARG_INT = 4,     /* as.integer */
  ARETE_ARG_FLOAT = 5,   /* as.real[0] */
  ARETE_ARG_COMPLEX = 6, /* as.real */
  ARETE_ARG_INTS = 7,    /* as.list of int64_t */
  ARETE_ARG_FLOATS = 8,  /* as.list of double */
  ARETE_ARG_STRING = 9,  /* as.string */
  ARETE_ARG_DTYPE = 10,  /* as.integer */
  ARETE_ARG_DEVICE = 11  /* as.string */
};

/* An argument: by its position, or by its name in the schema. It borrows what it points to. */
typedef struct arete_arg {
  const char* name; /* null: by position, before all that have names */
  int32_t kind;
  int32_t reserved; /* 0 */
  union {
    const arete_tensor* tensor;
    int64_t integer;
    double real[2];
    const char* string;
    struct {
      const void* data;
      size_t count;
    } list;
  } as;
} arete_arg;

/* Calls an operator. `op` is a name of docs/operator_table.md: "add", "max.dim"; "add_" is its form
 * in place, whose result is another handle of the first argument. Arguments that are left out have
 * the schema's defaults. Where the schema wants a number any kind of number will do, and where it
 * wants a tensor those that the operator takes.
 * `count`: the room in `results`, and then the number of results. Where there is no room for all of
 * them none is given, and the call fails. */
arete_status arete_call(const char* op, const arete_arg* args, size_t n_args,
                        arete_tensor** results, size_t* count);
/* "add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor". The text lives for ever. */
arete_status arete_operator_schema(const char* op, const char** out);
/* All names, sorted; they live for ever. */
arete_status arete_operator_names(const char* const** names, size_t* count);

static inline arete_arg arete_arg_of(int32_t kind) {
  arete_arg arg;
  arg.name = NULL;
  arg.kind = kind;
  arg.reserved = 0;
  arg.as.real[0] = arg.as.real[1] = 0;
  return arg;
}
static inline arete_arg arete_none(void) { return arete_arg_of(ARETE_ARG_NONE); }
static inline arete_arg arete_of(const arete_tensor* tensor) {
  arete_arg arg = arete_arg_of(ARETE_ARG_TENSOR);
  arg.as.tensor = tensor;
  return arg;
}
static inline arete_arg arete_list_of(int32_t kind, const void* data, size_t count) {
  arete_arg arg = arete_arg_of(kind);
  arg.as.list.data = data;
  arg.as.list.count = count;
  return arg;
}
static inline arete_arg arete_of_tensors(const arete_tensor* const* tensors, size_t count) {
  return arete_list_of(ARETE_ARG_TENSORS, tensors, count);
}
static inline arete_arg arete_ints(const int64_t* values, size_t count) {
  return arete_list_of(ARETE_ARG_INTS, values, count);
}
static inline arete_arg arete_floats(const double* values, size_t count) {
  return arete_list_of(ARETE_ARG_FLOATS, values, count);
}
static inline arete_arg arete_integer_of(int32_t kind, int64_t value) {
  arete_arg arg = arete_arg_of(kind);
  arg.as.integer = value;
  return arg;
}
static inline arete_arg arete_bool(int32_t value) {
  return arete_integer_of(ARETE_ARG_BOOL, value != 0);
}
static inline arete_arg arete_int(int64_t value) { return arete_integer_of(ARETE_ARG_INT, value); }
static inline arete_arg arete_of_dtype(arete_dtype value) {
  return arete_integer_of(ARETE_ARG_DTYPE, value);
}
static inline arete_arg arete_float(double value) {
  arete_arg arg = arete_arg_of(ARETE_ARG_FLOAT);
  arg.as.real[0] = value;
  return arg;
}
static inline arete_arg arete_complex(double real, double imaginary) {
  arete_arg arg = arete_arg_of(ARETE_ARG_COMPLEX);
  arg.as.real[0] = real;
  arg.as.real[1] = imaginary;
  return arg;
}
static inline arete_arg arete_string(const char* value) {
  arete_arg arg = arete_arg_of(ARETE_ARG_STRING);
  arg.as.string = value;
  return arg;
}
static inline arete_arg arete_of_device(const char* value) {
  arete_arg arg = arete_arg_of(ARETE_ARG_DEVICE);
  arg.as.string = value;
  return arg;
}
/* The argument under its name. */
static inline arete_arg arete_named(const char* name, arete_arg arg) {
  arg.name = name;
  return arg;
}

/* Random numbers are drawn from one generator; it begins anew. */
arete_status arete_manual_seed(uint64_t seed);

/* ---- differentiation */

arete_status arete_tensor_set_requires_grad(arete_tensor* tensor, int32_t requires_grad);
int32_t arete_tensor_requires_grad(const arete_tensor* tensor);
/* Adds d tensor / d leaf to every leaf's gradient. `gradient` may be null for one element. */
arete_status arete_tensor_backward(const arete_tensor* tensor, const arete_tensor* gradient,
                                   int32_t retain_graph, int32_t create_graph);
/* The accumulated gradient; null if there is none. */
arete_status arete_tensor_grad(const arete_tensor* tensor, arete_tensor** out);
/* Null: there is none any more. */
arete_status arete_tensor_set_grad(arete_tensor* tensor, const arete_tensor* grad);
/* The same values without history. */
arete_status arete_tensor_detach(const arete_tensor* tensor, arete_tensor** out);
/* Gradients of the outputs with respect to each input, which touch no leaf. `gradients`: one for
 * each output, or null. `results`: as many as inputs; null for an input that is not reached where
 * allow_unused, which is an error otherwise. */
arete_status arete_grad(const arete_tensor* const* outputs, size_t n_outputs,
                        const arete_tensor* const* inputs, size_t n_inputs,
                        const arete_tensor* const* gradients, int32_t retain_graph,
                        int32_t create_graph, int32_t allow_unused, arete_tensor** results);
/* Whether the calling thread's calls record history; `before` may be null. */
arete_status arete_set_grad_enabled(int32_t enabled, int32_t* before);

/* ---- GPUs. A device is a number; -1: the calling thread's current one. */

/* 0 where there is none that can be used; the reason is then arete_cuda_unavailable_reason(), which
 * lives until the next call of the thread. */
int32_t arete_cuda_device_count(void);
const char* arete_cuda_unavailable_reason(void);
int32_t arete_cuda_current_device(void);
arete_status arete_cuda_set_device(int32_t device);
/* Waits for all work, and raises what kernels recorded, such as an index out of range. */
arete_status arete_cuda_synchronize(int32_t device);

/* Queues of work, as cuda::Stream; the current one is the calling thread's. */
arete_status arete_stream_create(int32_t device, int32_t priority, arete_stream** out);
/* Over a cudaStream_t of the caller, who keeps it alive. */
arete_status arete_stream_from_native(void* stream, int32_t device, arete_stream** out);
arete_status arete_stream_current(int32_t device, arete_stream** out);
arete_status arete_stream_set_current(const arete_stream* stream);
arete_status arete_stream_native(const arete_stream* stream, void** out);
arete_status arete_stream_synchronize(const arete_stream* stream);
/* What is given to `stream` from now on waits for what `other` has been given. */
arete_status arete_stream_wait(const arete_stream* stream, const arete_stream* other);
void arete_stream_free(arete_stream* stream);

/* ---- saved programs (docs/program.md) */

/* Reads a file, which may be hostile. Null: the device on which the program was recorded. */
arete_status arete_program_load(const char* path, const char* device, arete_program** out);
/* The same of a file in memory. */
arete_status arete_program_parse(const void* bytes, size_t size, const char* device,
                                 arete_program** out);
void arete_program_free(arete_program* program);
arete_status arete_program_save(const arete_program* program, const char* path);
size_t arete_program_input_count(const arete_program* program);
size_t arete_program_output_count(const arete_program* program);
/* One input. `name` and `sizes` ("[batch, 2*time + 1]") live as long as the handle; each pointer
 * may be null. */
arete_status arete_program_input(const arete_program* program, size_t i, const char** name,
                                 arete_dtype* dtype, const char** sizes);
/* Makes the calls, under the modes of the thread, with history. `results` and `count` as in
 * arete_call. Several threads may run one program. */
arete_status arete_program_run(const arete_program* program, const arete_tensor* const* inputs,
                               size_t n_inputs, arete_tensor** results, size_t* count);
/* A parameter, buffer or constant by its name; writing into it changes the program. */
arete_status arete_program_state(const arete_program* program, const char* name,
                                 arete_tensor** out);
/* Moves it to another device. */
arete_status arete_program_to(arete_program* program, const char* device);

/* ---- safetensors files */

/* The file appears complete or not at all. */
arete_status arete_safetensors_save(const char* path, const char* const* names,
                                    const arete_tensor* const* tensors, size_t count);
/* Reads a file, which may be hostile, to the host. */
arete_status arete_safetensors_load(const char* path, arete_archive** out);
size_t arete_archive_count(const arete_archive* archive);
/* Names are sorted, and live as long as the archive; null beyond the last. */
const char* arete_archive_name(const arete_archive* archive, size_t i);
arete_status arete_archive_get(const arete_archive* archive, const char* name, arete_tensor** out);
/* A text that was saved with it, which lives as long as the archive; null if there is none. */
const char* arete_archive_metadata(const arete_archive* archive, const char* key);
void arete_archive_free(arete_archive* archive);

#ifdef __cplusplus
}
#endif

#endif /* ARETE_C_API_H */
