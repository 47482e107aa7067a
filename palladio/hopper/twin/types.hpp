// Types of device code, and the place in the source that a call stands at. Generated text and runtime share this file.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
struct alignas(8) u32x2 {
  u32 x, y;
};
struct alignas(16) u32x4 {
  u32 x, y, z, w;
};
struct alignas(64) TensorMap {
  u64 words[16];
};

namespace twin {
struct Site {
  const char* file;
  int line;
};

// Types of elements, in tensor maps and of products.
enum Number : u32 { U8, S8, U16, S32, U32, S64, U64, F16, BF16, TF32, F32, F64, E4M3, E5M2 };

// How a value is combined with what memory holds: as in ../device.cuh.
enum Combiner { ADD, MIN, MAX, AND, OR, XOR, EXCHANGE, STORE };

// An instruction of the tensor cores: m64 n `columns` k `depth`.
struct ProductKind {
  u32 columns, depth;
  Number result, left, right;
};
}  // namespace twin

namespace twin {
// A register of a left operand: its value, and where it can be seen until the product is complete. A value that was
// computed in the call has no such place.
struct Left {
  u32 value;
  const u32* place;
  Left(u32& variable) : value(variable), place(&variable) {}
  Left(const u32& constant) : value(constant), place(nullptr) {}
  Left(u32&& computed) : value(computed), place(nullptr) {}
};
}  // namespace twin

// The last parameter of every primitive. A default argument is evaluated where the call stands.
#define TWIN_SITE ::twin::Site site = {__builtin_FILE(), __builtin_LINE()}
