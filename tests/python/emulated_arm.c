// Calls one kernel that TVM compiled for AArch64: emulated_arm NAME < arguments > arguments after it
//
// Standard input holds all tensors, each as int64 code, bits, ndim, shape[ndim] and then its bytes;
// standard output gets the bytes of all of them, in the same order. KERNELS is X(name) X(name) ...

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tvm/ffi/c_api.h>
#include <tvm/runtime/c_backend_api.h>
#include <unistd.h>

enum { ALIGNMENT = 64, MAX_ARGUMENTS = 64, MAX_RANK = 8, TASKS = 3 };

#define X(name) extern int __tvm_ffi_##name(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
KERNELS
#undef X

static const struct {
  const char* name;
  int (*call)(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
} kernels[] = {
#define X(name) {#name, __tvm_ffi_##name},
    KERNELS
#undef X
};

static void fail(const char* reason) {
  fprintf(stderr, "emulated_arm: %s\n", reason);
  exit(1);
}

// What compiled code needs of TVM's runtime: it calls through these pointers.

// Memory whose next page faults: nothing may be read or written there. It is never freed.
static void* allocate(size_t size) {
  size_t page = sysconf(_SC_PAGESIZE);
  size_t used = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, mapped = (used / page + 1) * page;
  char* memory = mmap(NULL, mapped + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, mapped, PROT_READ | PROT_WRITE)) fail("no memory");
  memset(memory, 0xA5, mapped);  // nothing may rely on zeros
  return memory + mapped - used;
}

static void* alloc_workspace(int device, int id, uint64_t size, int code, int bits) {
  return allocate(size);
}

static int free_workspace(int device, int id, void* memory) { return 0; }

// One task after the other, and more than one, so that the loop is split.
static int launch(FTVMParallelLambda body, void* data, int tasks) {
  TVMParallelGroupEnv group = {.sync_handle = NULL, .num_task = tasks ? tasks : TASKS};
  for (int task = 0; task < group.num_task; ++task) {
    int status = body(task, &group, data);
    if (status) return status;
  }
  return 0;
}

void* __TVMBackendAllocWorkspace = alloc_workspace;
void* __TVMBackendFreeWorkspace = free_workspace;
void* __TVMBackendParallelLaunch = launch;

// Arguments

static int read_exactly(void* to, size_t size) { return fread(to, 1, size, stdin) == size; }

static size_t size_of(const DLTensor* tensor) {
  size_t elements = 1;
  for (int axis = 0; axis < tensor->ndim; ++axis) elements *= tensor->shape[axis];
  return elements * tensor->dtype.bits / 8;
}

static DLTensor* read_tensor(void) {
  int64_t head[3];
  if (!read_exactly(head, sizeof head)) return NULL;
  DLTensor* tensor = calloc(1, sizeof *tensor);
  tensor->device.device_type = kDLCPU;
  tensor->dtype = (DLDataType){.code = head[0], .bits = head[1], .lanes = 1};
  tensor->ndim = head[2];
  tensor->shape = calloc(2 * MAX_RANK, sizeof(int64_t));
  tensor->strides = tensor->shape + MAX_RANK;
  if (tensor->ndim > MAX_RANK || !read_exactly(tensor->shape, tensor->ndim * sizeof(int64_t)))
    fail("a shape is cut or has too many axes");
  int64_t step = 1;
  for (int axis = tensor->ndim - 1; axis >= 0; --axis) {
    tensor->strides[axis] = step;
    step *= tensor->shape[axis];
  }
  tensor->data = allocate(size_of(tensor));
  if (!read_exactly(tensor->data, size_of(tensor))) fail("a tensor is cut");
  return tensor;
}

static int call(const char* name, const TVMFFIAny* arguments, int count) {
  TVMFFIAny result = {.type_index = kTVMFFINone};
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; ++i)
    if (!strcmp(kernels[i].name, name)) return kernels[i].call(NULL, arguments, count, &result);
  fail("no such kernel");
  return 1;
}

int main(int argc, char** argv) {
  TVMFFIAny arguments[MAX_ARGUMENTS] = {{0}};
  int count = 0;
  if (argc != 2) fail("needs the name of a kernel");
  for (DLTensor* tensor; (tensor = read_tensor()); ++count) {
    if (count == MAX_ARGUMENTS) fail("too many arguments");
    arguments[count].type_index = kTVMFFIDLTensorPtr;
    arguments[count].v_ptr = tensor;
  }
  if (call(argv[1], arguments, count)) fail("the kernel failed");
  for (int i = 0; i < count; ++i) {
    DLTensor* tensor = arguments[i].v_ptr;
    if (fwrite(tensor->data, 1, size_of(tensor), stdout) != size_of(tensor)) fail("cannot write");
  }
  return fflush(stdout) ? 1 : 0;
}
