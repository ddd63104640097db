// 128-bit integers, for products of two 64-bit quantities that must stay exact.
#pragma once

namespace thalweg {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

}  // namespace thalweg
