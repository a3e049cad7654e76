package private

import (
	"errors"
	"io"

	"github.com/crishim/crishim/api"
)

// imageChunk is how much of an archive of images goes into one message.
const imageChunk = 512 << 10

// SaveImages sends images as the engine's archive.
func (s *Service) SaveImages(r *api.SaveImagesRequest, out api.Crishim_SaveImagesServer) error {
	content, err := s.Images.Save(out.Context(), r.GetImages())
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.CopyBuffer(imageWriter{out}, struct{ io.Reader }{content}, make([]byte, imageChunk))
	return err
}

// imageWriter sends what is written as messages of a SaveImages call.
type imageWriter struct{ out api.Crishim_SaveImagesServer }

// Write implements io.Writer.
func (w imageWriter) Write(b []byte) (int, error) {
	return len(b), w.out.Send(&api.ImageArchive{Data: b})
}

// LoadImages loads an archive.
func (s *Service) LoadImages(in api.Crishim_LoadImagesServer) error {
	content := &messageReader[*api.ImageArchive]{recv: in.Recv}
	if err := s.Images.Load(in.Context(), content); err != nil {
		return errors.Join(content.failure(), err)
	}
	return in.SendAndClose(&api.LoadImagesResponse{})
}
