// The functions of fmt that are no templates, in place of fmt's library: libnccl-net-thalweg.so needs the C library only
// (cmake/ThalwegNccl.cmake).
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

#if FMT_VERSION < 100000
using CharArguments = basic_format_args<FMT_BUFFER_CONTEXT(char)>;
#else
using CharArguments = vformat_args<char>::type;
#endif

template FMT_API auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);
template FMT_API void vformat_to(buffer<char>&, string_view, CharArguments, locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
