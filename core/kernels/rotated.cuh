// SPDX-License-Identifier: MPL-2.0
// Boxes that are rotated about their centres, for rotated.cu and plan.cu. The reference implementation is src/image/rotated.rs, bit for bit.
#pragma once

#include "common.cuh"

inline constexpr float PI = 3.14159265358979f;
inline constexpr float HALF_PI = 1.57079632679490f;
inline constexpr float QUARTER_PI = 0.785398163397448f;

// As RotatedBox: its edges before the rotation, and the angle.
struct Turned {
    float x1, y1, x2, y2, angle;

    __device__ __forceinline__ float x() const { return (x1 + x2) * 0.5f; }
    __device__ __forceinline__ float y() const { return (y1 + y2) * 0.5f; }
    __device__ __forceinline__ float width() const { return x2 - x1; }
    __device__ __forceinline__ float height() const { return y2 - y1; }
};

__device__ __forceinline__ Turned around(float x, float y, float width, float height, float angle) {
    const float dx = width * 0.5f, dy = height * 0.5f;
    return {x - dx, y - dy, x + dx, y + dy, angle};
}

// As RotatedBox::regular.
__device__ __forceinline__ Turned regular(const Turned &box) {
    float angle = fmodf(box.angle, PI);
    if (angle < 0) angle = angle + PI;
    if (angle >= PI) angle = angle - PI;
    if (angle < HALF_PI) return {box.x1, box.y1, box.x2, box.y2, angle};
    return around(box.x(), box.y(), box.height(), box.width(), angle - HALF_PI);
}

// Of an angle from 0 to half of pi.
__device__ __forceinline__ void sin_cos(float angle, float &sin, float &cos) {
    const bool is_steep = angle > QUARTER_PI;
    const float x = is_steep ? HALF_PI - angle : angle;
    const float z = x * x;
    const float rising = x + x * z * (-1.0f / 6.0f + z * (1.0f / 120.0f + z * (-1.0f / 5040.0f + z * (1.0f / 362880.0f))));
    const float falling = 1.0f + z * (-0.5f + z * (1.0f / 24.0f + z * (-1.0f / 720.0f + z * (1.0f / 40320.0f))));
    sin = is_steep ? falling : rising;
    cos = is_steep ? rising : falling;
}

struct Corners {
    float x[4], y[4];
};

// As RotatedBox::corners.
__device__ __forceinline__ Corners corners_of(const Turned &any) {
    const Turned box = regular(any);
    float sin, cos;
    sin_cos(box.angle, sin, cos);
    const float x = box.x(), y = box.y(), half_width = box.width() * 0.5f, half_height = box.height() * 0.5f;
    const float across_x = half_width * cos, across_y = half_width * sin;
    const float along_x = -(half_height * sin), along_y = half_height * cos;
    return {{x + across_x + along_x, x + across_x - along_x, x - across_x - along_x, x - across_x + along_x},
            {y + across_y + along_y, y + across_y - along_y, y - across_y - along_y, y - across_y + along_y}};
}
