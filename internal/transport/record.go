package transport

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/kintsugi-ml/kintsugi"
	pb "github.com/kintsugi-ml/kintsugi/proto/kintsugi/v1"
)

// MaxRecord bounds what AppendRecord appends for a commit of so many pushes, with so many countable
// workers, on so many chunks.
func MaxRecord(pushes, workers, chunks int) int {
	return 1024 + bytesPerPush*pushes + bytesPerWorker*workers + bytesPerChunk*chunks
}

// AppendRecord appends a commit and what was answered when it was applied: the two messages as they
// travel, each behind its length as a uvarint.
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

// ReadRecord reads what AppendRecord has appended and returns what follows it. Anything else is ErrCorrupt.
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
