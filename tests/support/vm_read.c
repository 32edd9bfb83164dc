/* Counts bytes read from other processes, where the C library is asked for them: an account of what
 * ranks of a node read of each other that shares nothing with the backend's own. Linked into a
 * test. (MPI may read so too; where ranks share memory it has nothing large to carry.) */
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static _Atomic int64_t read_bytes;

int64_t zr_vm_read_bytes(void);

int64_t zr_vm_read_bytes(void) {
  return atomic_load(&read_bytes);
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local,
                         const struct iovec *remote, unsigned long n_remote, unsigned long flags) {
  const ssize_t n =
      syscall(SYS_process_vm_readv, (long)pid, local, n_local, remote, n_remote, flags);
  if (n > 0) atomic_fetch_add(&read_bytes, n);
  return n;
}
