#include "runtime/train/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/train/files.h"

enum { LENGTH_BYTES = 8, MOST_HEADER_BYTES = 100000000, PIECE_BYTES = 1 << 22 };

/* --- writing --------------------------------------------------------------------------------- */

struct zr_safetensors_writer_t {
  zr_alloc_t *alloc;
  char *path;
  int fd;
  int64_t left_bytes, written_bytes;
  XXH3_state_t *hash;
};

static zr_status_t put(zr_safetensors_writer_t *writer, const void *data, size_t bytes) {
  ZR_TRY(zr_files_write_all(writer->fd, writer->path, data, bytes));
  (void)XXH3_64bits_update(writer->hash, data, bytes);
  writer->written_bytes += (int64_t)bytes;
  return ZR_OK;
}

/* The data part begins at a multiple of 64, as the format's own writer has it. */
static zr_status_t put_header(zr_safetensors_writer_t *writer, const char *json, size_t bytes) {
  char length[LENGTH_BYTES], spaces[64];
  size_t pad = (64 - (LENGTH_BYTES + bytes) % 64) % 64;
  for (int i = 0; i < LENGTH_BYTES; ++i) length[i] = (char)((uint64_t)(bytes + pad) >> (8 * i));
  memset(spaces, ' ', sizeof spaces);
  ZR_TRY(put(writer, length, sizeof length));
  ZR_TRY(put(writer, json, bytes));
  return put(writer, spaces, pad);
}

static void print_entry(FILE *out, const zr_safetensors_entry_t *entry, bool first) {
  (void)fprintf(out, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", first ? "" : ",", entry->name,
                zr_dtype_safetensors(entry->dtype));
  for (int i = 0; i < entry->n_dims; ++i) {
    (void)fprintf(out, "%s%lld", i ? "," : "", (long long)entry->dim[i]);
  }
  (void)fprintf(out, "],\"data_offsets\":[%lld,%lld]}", (long long)entry->offset,
                (long long)(entry->offset + entry->bytes));
}

static zr_status_t write_header(zr_safetensors_writer_t *writer, zr_safetensors_entry_t *entry,
                                size_t n_entries) {
  char *json = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&json, &bytes);
  if (out == NULL) return zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for the header of a file");
  (void)fputs("{\"__metadata__\":{\"format\":\"pt\"}", out);
  for (size_t i = 0; i < n_entries; ++i) {
    int64_t elems = 1;
    for (int d = 0; d < entry[i].n_dims; ++d) elems *= entry[i].dim[d];
    entry[i].offset = writer->left_bytes;
    entry[i].bytes = elems * zr_dtype_bytes(entry[i].dtype);
    writer->left_bytes += entry[i].bytes;
    print_entry(out, &entry[i], false);
  }
  (void)fputc('}', out);
  int failed = fclose(out);
  zr_status_t status = failed ? zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for a file's header")
                              : put_header(writer, json, bytes);
  zr_files_release(json);
  return status;
}

zr_status_t zr_safetensors_create(zr_alloc_t *alloc, const char *path,
                                  zr_safetensors_entry_t *entry, size_t n_entries,
                                  zr_safetensors_writer_t **out_writer) {
  zr_safetensors_writer_t *writer = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *writer, &writer));
  writer->alloc = alloc;
  writer->fd = -1;
  zr_status_t status = zr_alloc_strdup(alloc, path, &writer->path);
  if (status != ZR_OK) goto fail;
  writer->hash = XXH3_createState();
  if (writer->hash == NULL) {
    status = zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for a checksum");
    goto fail;
  }
  (void)XXH3_64bits_reset(writer->hash);
  writer->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (writer->fd < 0) {
    status = zr_files_fail("create", path, errno);
    goto fail;
  }
  status = write_header(writer, entry, n_entries);
  if (status != ZR_OK) goto fail;
  *out_writer = writer;
  return ZR_OK;
fail:
  zr_safetensors_abandon(writer);
  return status;
}

zr_status_t zr_safetensors_append(zr_safetensors_writer_t *writer, const void *data,
                                  int64_t bytes) {
  if (bytes > writer->left_bytes) {
    return zr_fail(ZR_ERR_INTERNAL, "%s: more data than its header says", writer->path);
  }
  ZR_TRY(put(writer, data, (size_t)bytes));
  writer->left_bytes -= bytes;
  return ZR_OK;
}

zr_status_t zr_safetensors_finish(zr_safetensors_writer_t *writer, uint64_t *out_hash,
                                  int64_t *out_bytes) {
  zr_status_t status = ZR_OK;
  if (writer->left_bytes != 0) {
    status = zr_fail(ZR_ERR_INTERNAL, "%s: less data than its header says", writer->path);
  } else if (fsync(writer->fd) != 0) {
    status = zr_files_fail("sync", writer->path, errno);
  }
  int fd = writer->fd;
  writer->fd = -1;
  if (close(fd) != 0 && status == ZR_OK) status = zr_files_fail("close", writer->path, errno);
  if (status == ZR_OK) {
    *out_hash = XXH3_64bits_digest(writer->hash);
    *out_bytes = writer->written_bytes;
  }
  zr_safetensors_abandon(writer);
  return status;
}

void zr_safetensors_abandon(zr_safetensors_writer_t *writer) {
  if (writer == NULL) return;
  if (writer->fd >= 0) close(writer->fd);
  if (writer->hash != NULL) (void)XXH3_freeState(writer->hash);
  zr_alloc_free(writer->alloc, writer->path);
  zr_alloc_free(writer->alloc, writer);
}

/* --- reading --------------------------------------------------------------------------------- */

static zr_status_t read_at(int fd, const char *path, int64_t offset, void *out_data,
                           int64_t bytes) {
  char *at = out_data;
  while (bytes > 0) {
    size_t piece = (size_t)(bytes < 1 << 30 ? bytes : 1 << 30);
    ssize_t got = pread(fd, at, piece, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return zr_fail(ZR_ERR_IO, "can not read %s: %s", path, strerror(errno));
    if (got == 0) return zr_fail(ZR_ERR_DATA, "%s is cut off", path);
    at += got;
    offset += got;
    bytes -= got;
  }
  return ZR_OK;
}

static zr_status_t bad_entry(const zr_safetensors_t *file, const char *name, const char *what) {
  return zr_fail(ZR_ERR_DATA, "%s: tensor %.100s: %s", file->path, name, what);
}

static zr_status_t parse_entry(zr_safetensors_t *file, const char *name, json_t *value,
                               int64_t data_bytes) {
  zr_safetensors_entry_t *entry = &file->entry[file->n_entries];
  json_t *shape = json_object_get(value, "shape");
  json_t *offsets = json_object_get(value, "data_offsets");
  const char *dtype = json_string_value(json_object_get(value, "dtype"));
  if (strlen(name) >= sizeof entry->name) return bad_entry(file, name, "the name is too long");
  if (dtype == NULL || !json_is_array(shape) || json_array_size(offsets) != 2 ||
      json_array_size(shape) > ZR_SAFETENSORS_MAX_DIMS) {
    return bad_entry(file, name, "dtype, shape or data_offsets is missing or wrong");
  }
  ZR_TRY(zr_dtype_parse(dtype, &entry->dtype));
  (void)snprintf(entry->name, sizeof entry->name, "%s", name);
  int64_t bytes = zr_dtype_bytes(entry->dtype);
  entry->n_dims = (int)json_array_size(shape);
  for (int i = 0; i < entry->n_dims; ++i) {
    entry->dim[i] = json_integer_value(json_array_get(shape, (size_t)i));
    if (entry->dim[i] < 0 || (entry->dim[i] > 0 && bytes > INT64_MAX / entry->dim[i])) {
      return bad_entry(file, name, "a wrong shape");
    }
    bytes *= entry->dim[i];
  }
  int64_t begin = json_integer_value(json_array_get(offsets, 0));
  int64_t end = json_integer_value(json_array_get(offsets, 1));
  if (begin < 0 || end < begin || end - begin != bytes) {
    return bad_entry(file, name, "data_offsets do not fit its shape");
  }
  if (end > data_bytes) return zr_fail(ZR_ERR_DATA, "%s is cut off", file->path);
  entry->offset = begin;
  entry->bytes = bytes;
  file->n_entries += 1;
  return ZR_OK;
}

static zr_status_t parse_header(zr_safetensors_t *file, const char *text, size_t bytes,
                                int64_t data_bytes) {
  json_error_t error;
  json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL || !json_is_object(root)) {
    json_decref(root);
    return zr_fail(ZR_ERR_DATA, "%s is not a safetensors file: its header is not JSON", file->path);
  }
  zr_status_t status =
      zr_alloc_get(file->alloc, json_object_size(root), sizeof *file->entry, &file->entry);
  const char *name;
  json_t *value;
  json_object_foreach(root, name, value) {
    if (status == ZR_OK && strcmp(name, "__metadata__") != 0) {
      status = parse_entry(file, name, value, data_bytes);
    }
  }
  json_decref(root);
  return status;
}

static zr_status_t read_header(zr_safetensors_t *file) {
  struct stat about;
  if (fstat(file->fd, &about) != 0) return zr_files_fail("read", file->path, errno);
  unsigned char length[LENGTH_BYTES];
  if (about.st_size < LENGTH_BYTES) {
    return zr_fail(ZR_ERR_DATA, "%s is cut off: it has %lld bytes", file->path,
                   (long long)about.st_size);
  }
  ZR_TRY(read_at(file->fd, file->path, 0, length, LENGTH_BYTES));
  uint64_t bytes = 0;
  for (int i = LENGTH_BYTES - 1; i >= 0; --i) bytes = bytes << 8 | length[i];
  if (bytes > MOST_HEADER_BYTES) {
    return zr_fail(ZR_ERR_DATA, "%s is not a safetensors file", file->path);
  }
  file->data_begin = LENGTH_BYTES + (int64_t)bytes;
  if (file->data_begin > about.st_size) {
    return zr_fail(ZR_ERR_DATA, "%s is cut off: it has %lld bytes, its header alone %lld",
                   file->path, (long long)about.st_size, (long long)file->data_begin);
  }
  char *text = NULL;
  ZR_TRY(zr_alloc_get(file->alloc, bytes, 1, &text));
  zr_status_t status = read_at(file->fd, file->path, LENGTH_BYTES, text, (int64_t)bytes);
  if (status == ZR_OK) status = parse_header(file, text, bytes, about.st_size - file->data_begin);
  zr_alloc_free(file->alloc, text);
  return status;
}

zr_status_t zr_safetensors_open(zr_alloc_t *alloc, const char *path, zr_safetensors_t **out_file) {
  zr_safetensors_t *file = NULL;
  ZR_TRY(zr_alloc_get(alloc, 1, sizeof *file, &file));
  file->alloc = alloc;
  file->fd = -1;
  zr_status_t status = zr_alloc_strdup(alloc, path, &file->path);
  if (status != ZR_OK) goto fail;
  file->fd = open(path, O_RDONLY | O_CLOEXEC);
  if (file->fd < 0) {
    status = zr_fail(ZR_ERR_DATA, "can not open %s: %s", path, strerror(errno));
    goto fail;
  }
  status = read_header(file);
  if (status != ZR_OK) goto fail;
  *out_file = file;
  return ZR_OK;
fail:
  zr_safetensors_close(file);
  return status;
}

void zr_safetensors_close(zr_safetensors_t *file) {
  if (file == NULL) return;
  if (file->fd >= 0) close(file->fd);
  zr_alloc_free(file->alloc, file->entry);
  zr_alloc_free(file->alloc, file->path);
  zr_alloc_free(file->alloc, file);
}

zr_status_t zr_safetensors_read(const zr_safetensors_t *file, const zr_safetensors_entry_t *entry,
                                int64_t offset, void *out_data, int64_t bytes) {
  if (offset < 0 || bytes < 0 || offset + bytes > entry->bytes) {
    return zr_fail(ZR_ERR_INTERNAL, "%s: %s: read past its end", file->path, entry->name);
  }
  return read_at(file->fd, file->path, file->data_begin + entry->offset + offset, out_data, bytes);
}

static zr_status_t hash_fd(int fd, const char *path, char *piece, XXH3_state_t *state,
                           int64_t *out_bytes) {
  int64_t total = 0;
  for (;;) {
    ssize_t got = read(fd, piece, PIECE_BYTES);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return zr_fail(ZR_ERR_IO, "can not read %s: %s", path, strerror(errno));
    if (got == 0) break;
    (void)XXH3_64bits_update(state, piece, (size_t)got);
    total += got;
  }
  *out_bytes = total;
  return ZR_OK;
}

zr_status_t zr_safetensors_hash(zr_alloc_t *alloc, const char *path, uint64_t *out_hash,
                                int64_t *out_bytes) {
  char *piece = NULL;
  ZR_TRY(zr_alloc_get(alloc, PIECE_BYTES, 1, &piece));
  XXH3_state_t *state = XXH3_createState();
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  zr_status_t status = ZR_OK;
  if (fd < 0) {
    status = zr_fail(ZR_ERR_DATA, "can not open %s: %s", path, strerror(errno));
  } else if (state == NULL) {
    status = zr_fail(ZR_ERR_OUT_OF_MEMORY, "no memory for a checksum");
  } else {
    (void)XXH3_64bits_reset(state);
    status = hash_fd(fd, path, piece, state, out_bytes);
    if (status == ZR_OK) *out_hash = XXH3_64bits_digest(state);
  }
  if (fd >= 0) close(fd);
  if (state != NULL) (void)XXH3_freeState(state);
  zr_alloc_free(alloc, piece);
  return status;
}
