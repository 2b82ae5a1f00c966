// Included inside class Tensor: the operators that are methods. One line declares each; its
// definition stands beside its record in ops/ and its documentation with the free function.
// clang-format off
#define ARETE_UNARY_METHOD(name) Tensor name() const; Tensor& name##_();
#define ARETE_BINARY_METHOD(name) \
  Tensor name(const Tensor& other) const; Tensor name(Scalar other) const; \
  Tensor& name##_(const Tensor& other); Tensor& name##_(Scalar other);

// pointwise, unary
ARETE_UNARY_METHOD(neg) ARETE_UNARY_METHOD(abs) ARETE_UNARY_METHOD(sign) ARETE_UNARY_METHOD(sgn)
ARETE_UNARY_METHOD(positive) ARETE_UNARY_METHOD(floor) ARETE_UNARY_METHOD(ceil) ARETE_UNARY_METHOD(trunc)
ARETE_UNARY_METHOD(round) ARETE_UNARY_METHOD(frac) ARETE_UNARY_METHOD(sqrt) ARETE_UNARY_METHOD(rsqrt)
ARETE_UNARY_METHOD(square) ARETE_UNARY_METHOD(reciprocal) ARETE_UNARY_METHOD(exp) ARETE_UNARY_METHOD(exp2)
ARETE_UNARY_METHOD(expm1) ARETE_UNARY_METHOD(log) ARETE_UNARY_METHOD(log2) ARETE_UNARY_METHOD(log10)
ARETE_UNARY_METHOD(log1p) ARETE_UNARY_METHOD(sin) ARETE_UNARY_METHOD(cos) ARETE_UNARY_METHOD(tan)
ARETE_UNARY_METHOD(asin) ARETE_UNARY_METHOD(acos) ARETE_UNARY_METHOD(atan) ARETE_UNARY_METHOD(sinh)
ARETE_UNARY_METHOD(cosh) ARETE_UNARY_METHOD(tanh) ARETE_UNARY_METHOD(asinh) ARETE_UNARY_METHOD(acosh)
ARETE_UNARY_METHOD(atanh) ARETE_UNARY_METHOD(erf) ARETE_UNARY_METHOD(erfc) ARETE_UNARY_METHOD(erfinv)
ARETE_UNARY_METHOD(lgamma) ARETE_UNARY_METHOD(digamma) ARETE_UNARY_METHOD(sigmoid) ARETE_UNARY_METHOD(logit)
ARETE_UNARY_METHOD(sinc) ARETE_UNARY_METHOD(deg2rad) ARETE_UNARY_METHOD(rad2deg)
ARETE_UNARY_METHOD(relu) ARETE_UNARY_METHOD(logical_not) ARETE_UNARY_METHOD(bitwise_not)
Tensor isnan() const; Tensor isinf() const; Tensor isfinite() const; Tensor signbit() const;
Tensor nan_to_num(double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {}) const;
Tensor operator-() const; Tensor operator~() const;

// pointwise, binary and ternary
Tensor add(const Tensor& other, Scalar alpha = 1) const; Tensor add(Scalar other, Scalar alpha = 1) const;
Tensor& add_(const Tensor& other, Scalar alpha = 1); Tensor& add_(Scalar other, Scalar alpha = 1);
Tensor sub(const Tensor& other, Scalar alpha = 1) const; Tensor sub(Scalar other, Scalar alpha = 1) const;
Tensor& sub_(const Tensor& other, Scalar alpha = 1); Tensor& sub_(Scalar other, Scalar alpha = 1);
ARETE_BINARY_METHOD(mul) ARETE_BINARY_METHOD(div) ARETE_BINARY_METHOD(pow) ARETE_BINARY_METHOD(floor_divide)
ARETE_BINARY_METHOD(fmod) ARETE_BINARY_METHOD(remainder) ARETE_BINARY_METHOD(atan2) ARETE_BINARY_METHOD(hypot)
ARETE_BINARY_METHOD(copysign) ARETE_BINARY_METHOD(nextafter) ARETE_BINARY_METHOD(logaddexp)
ARETE_BINARY_METHOD(xlogy) ARETE_BINARY_METHOD(eq) ARETE_BINARY_METHOD(ne) ARETE_BINARY_METHOD(lt)
ARETE_BINARY_METHOD(le) ARETE_BINARY_METHOD(gt) ARETE_BINARY_METHOD(ge) ARETE_BINARY_METHOD(logical_and)
ARETE_BINARY_METHOD(logical_or) ARETE_BINARY_METHOD(logical_xor) ARETE_BINARY_METHOD(bitwise_and)
ARETE_BINARY_METHOD(bitwise_or) ARETE_BINARY_METHOD(bitwise_xor) ARETE_BINARY_METHOD(bitwise_left_shift)
ARETE_BINARY_METHOD(bitwise_right_shift)
Tensor maximum(const Tensor& other) const; Tensor minimum(const Tensor& other) const;
Tensor fmax(const Tensor& other) const; Tensor fmin(const Tensor& other) const;
Tensor& operator+=(const Tensor& o); Tensor& operator+=(Scalar o);
Tensor& operator-=(const Tensor& o); Tensor& operator-=(Scalar o);
Tensor& operator*=(const Tensor& o); Tensor& operator*=(Scalar o);
Tensor& operator/=(const Tensor& o); Tensor& operator/=(Scalar o);
Tensor clamp(std::optional<Scalar> min = {}, std::optional<Scalar> max = {}) const;
Tensor& clamp_(std::optional<Scalar> min = {}, std::optional<Scalar> max = {});
Tensor clamp(const Tensor& min, const Tensor& max) const;
Tensor lerp(const Tensor& end, Scalar weight) const; Tensor& lerp_(const Tensor& end, Scalar weight);
Tensor lerp(const Tensor& end, const Tensor& weight) const;
Tensor addcmul(const Tensor& a, const Tensor& b, Scalar value = 1) const; Tensor& addcmul_(const Tensor& a, const Tensor& b, Scalar value = 1);
Tensor addcdiv(const Tensor& a, const Tensor& b, Scalar value = 1) const; Tensor& addcdiv_(const Tensor& a, const Tensor& b, Scalar value = 1);
Tensor where(const Tensor& condition, const Tensor& other) const;

// reductions; without dims over all of them
Tensor sum(std::optional<DType> dtype = {}) const; Tensor sum(IntList dims, bool keepdim = false, std::optional<DType> dtype = {}) const; Tensor sum(int64_t dim, bool keepdim = false) const;
Tensor mean(std::optional<DType> dtype = {}) const; Tensor mean(IntList dims, bool keepdim = false, std::optional<DType> dtype = {}) const; Tensor mean(int64_t dim, bool keepdim = false) const;
Tensor prod() const; Tensor prod(int64_t dim, bool keepdim = false) const;
Tensor var(IntList dims = {}, double correction = 1, bool keepdim = false) const;
Tensor std(IntList dims = {}, double correction = 1, bool keepdim = false) const;
Tensor min() const; Tensor max() const;
std::tuple<Tensor, Tensor> min(int64_t dim, bool keepdim = false) const;
std::tuple<Tensor, Tensor> max(int64_t dim, bool keepdim = false) const;
Tensor amin(IntList dims = {}, bool keepdim = false) const; Tensor amax(IntList dims = {}, bool keepdim = false) const;
Tensor argmin(std::optional<int64_t> dim = {}, bool keepdim = false) const; Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false) const;
Tensor any() const; Tensor any(IntList dims, bool keepdim = false) const; Tensor all() const; Tensor all(IntList dims, bool keepdim = false) const;
Tensor norm(double p = 2, IntList dims = {}, bool keepdim = false) const;
Tensor logsumexp(IntList dims, bool keepdim = false) const; Tensor logsumexp(int64_t dim, bool keepdim = false) const;
Tensor cumsum(int64_t dim) const; Tensor cumprod(int64_t dim) const;
Tensor count_nonzero(IntList dims = {}) const;

// matrices
Tensor mm(const Tensor& other) const; Tensor bmm(const Tensor& other) const; Tensor matmul(const Tensor& other) const;
Tensor mv(const Tensor& vec) const; Tensor dot(const Tensor& other) const; Tensor outer(const Tensor& other) const;
Tensor addmm(const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1) const;
Tensor baddbmm(const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1) const;

// shape
Tensor view(IntList sizes) const; Tensor view_as(const Tensor& other) const; Tensor reshape(IntList sizes) const;
Tensor reshape_as(const Tensor& other) const; Tensor permute(IntList dims) const; Tensor transpose(int64_t a, int64_t b) const;
Tensor t() const; Tensor mT() const; Tensor movedim(int64_t source, int64_t destination) const;
Tensor squeeze() const; Tensor squeeze(int64_t dim) const; Tensor squeeze(IntList dims) const; Tensor unsqueeze(int64_t dim) const;
Tensor expand(IntList sizes) const; Tensor expand_as(const Tensor& other) const; Tensor broadcast_to(IntList sizes) const;
Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const; Tensor unflatten(int64_t dim, IntList sizes) const; Tensor ravel() const;
Tensor narrow(int64_t dim, int64_t start, int64_t length) const; Tensor select(int64_t dim, int64_t index) const;
Tensor slice(int64_t dim, std::optional<int64_t> start = {}, std::optional<int64_t> stop = {}, int64_t step = 1) const;
Tensor as_strided(IntList sizes, IntList strides, int64_t offset = 0) const; Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1) const;
Tensor unfold(int64_t dim, int64_t size, int64_t step) const;
std::vector<Tensor> split(int64_t size, int64_t dim = 0) const; std::vector<Tensor> split(IntList sizes, int64_t dim = 0) const;
std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0) const; std::vector<Tensor> unbind(int64_t dim = 0) const;
Tensor repeat(IntList repeats) const; Tensor repeat_interleave(int64_t repeats, std::optional<int64_t> dim = {}) const; Tensor tile(IntList repeats) const;
Tensor roll(IntList shifts, IntList dims = {}) const; Tensor flip(IntList dims) const;
Tensor tril(int64_t diagonal = 0) const; Tensor triu(int64_t diagonal = 0) const;
Tensor& squeeze_(int64_t dim); Tensor& unsqueeze_(int64_t dim); Tensor& transpose_(int64_t a, int64_t b); Tensor& t_();

// indexing, searching, sorting
Tensor gather(int64_t dim, const Tensor& index) const; Tensor take_along_dim(const Tensor& index, std::optional<int64_t> dim = {}) const;
Tensor scatter(int64_t dim, const Tensor& index, const Tensor& src) const; Tensor scatter(int64_t dim, const Tensor& index, Scalar value) const;
Tensor& scatter_(int64_t dim, const Tensor& index, const Tensor& src); Tensor& scatter_(int64_t dim, const Tensor& index, Scalar value);
Tensor scatter_add(int64_t dim, const Tensor& index, const Tensor& src) const; Tensor& scatter_add_(int64_t dim, const Tensor& index, const Tensor& src);
Tensor index_select(int64_t dim, const Tensor& index) const; Tensor index_add(int64_t dim, const Tensor& index, const Tensor& src, Scalar alpha = 1) const;
Tensor& index_add_(int64_t dim, const Tensor& index, const Tensor& src, Scalar alpha = 1);
Tensor masked_fill(const Tensor& mask, Scalar value) const; Tensor& masked_fill_(const Tensor& mask, Scalar value);
Tensor masked_select(const Tensor& mask) const; Tensor nonzero() const;
std::tuple<Tensor, Tensor> sort(int64_t dim = -1, bool descending = false, bool stable = true) const; Tensor argsort(int64_t dim = -1, bool descending = false, bool stable = true) const;
std::tuple<Tensor, Tensor> topk(int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true) const;

// random, in place
Tensor& uniform_(double from = 0, double to = 1); Tensor& normal_(double mean = 0, double std = 1);
Tensor& random_(int64_t from, int64_t to); Tensor& bernoulli_(double p = 0.5); Tensor& exponential_(double lambda = 1);

// neural network functions that are methods, too
Tensor softmax(int64_t dim) const; Tensor log_softmax(int64_t dim) const;
#undef ARETE_UNARY_METHOD
#undef ARETE_BINARY_METHOD
// clang-format on
