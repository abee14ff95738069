"""What a person sees of the work: pictures, and the page that holds them."""
