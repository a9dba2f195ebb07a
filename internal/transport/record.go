package transport

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/kintsugi-ml/kintsugi"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// MaxRecord returns the limit on the bytes that AppendRecord appends for a commit of the given
// number of pushes, with the given number of countable workers, on the given number of chunks.
func MaxRecord(pushes, workers, chunks int) int {
	return 1024 + bytesPerPush*pushes + bytesPerWorker*workers + bytesPerChunk*chunks
}

// AppendRecord appends a commit, and the answer that was given when it was applied. Each is the
// protobuf message, preceded by its length as a uvarint.
func AppendRecord(b []byte, c kintsugi.Commit, s kintsugi.Stable) ([]byte, error) {
	for _, m := range []proto.Message{commitTo(c), stableTo(s)} {
		b = binary.AppendUvarint(b, uint64(proto.Size(m)))
		var err error
		if b, err = (proto.MarshalOptions{}).MarshalAppend(b, m); err != nil {
			return b, fmt.Errorf("encode the record of step %d: %w", c.Step, err)
		}
	}
	return b, nil
}

// ReadRecord reads what AppendRecord has appended, and returns the bytes that follow. Anything else
// is an ErrCorrupt.
func ReadRecord(b []byte) (c kintsugi.Commit, s kintsugi.Stable, rest []byte, err error) {
	var commit pb.Commit
	var stable pb.Stable
	for _, m := range []proto.Message{&commit, &stable} {
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return c, s, nil, fmt.Errorf("%w: the record of a step ends too early", kintsugi.ErrCorrupt)
		}
		b = b[size:]
		if err := proto.Unmarshal(b[:n], m); err != nil {
			return c, s, nil, fmt.Errorf("%w: the record of a step: %w", kintsugi.ErrCorrupt, err)
		}
		b = b[n:]
	}
	return commitFrom(&commit), stableFrom(&stable), b, nil
}
